/*
 * The failures that need something around the program: models that are damaged, no ONNX Runtime, no such device, too little memory
 * (its ctest sets GOMEMLIMIT), a full disk.
 * Arguments: "models", the folder of the engine's test bundles, a folder to write to; or "disk-full", a folder with 16 KiB left.
 */
#include <dirent.h>
#include <stdlib.h>

#include "check.h"
#include "phantom.h"

/* Reads a whole file; the caller frees it. */
static char *slurp(const char *path, size_t *size) {
  FILE *f = fopen(path, "rb");
  if (f == NULL) {
    perror(path);
    exit(2);
  }
  fseek(f, 0, SEEK_END);
  *size = (size_t)ftell(f);
  rewind(f);
  char *bytes = malloc(*size);
  if (fread(bytes, 1, *size, f) != *size) exit(2);
  fclose(f);
  return bytes;
}

static void spill(const char *path, const char *bytes, size_t size) {
  FILE *f = fopen(path, "wb");
  if (f == NULL || fwrite(bytes, 1, size, f) != size || fclose(f) != 0) {
    perror(path);
    exit(2);
  }
}

/* Expects a verification and a registration to be refused with the same code. */
static void refused(ms_status code, ms_engine engine, const char *model, const char *device) {
  const ms_image fixed = phantom(20, 18, 16, 1.5, 0), moving = phantom(24, 22, 18, 1.25, 3);
  ms_options options;
  ms_result result = 99;
  EXPECT(MS_OK, ms_options_init(&options, sizeof options));
  options.initial = "com";
  options.model = model;
  options.device = device;
  EXPECT(code, ms_register(engine, &fixed, &moving, &options, NULL, NULL, &result));
  CHECK(result == 0);
  free((void *)fixed.voxels), free((void *)moving.voxels);
}

static void test_models(const char *bundles, const char *folder) {
  char path[1024], broken[1024];
  size_t size, needed;
  ms_engine engine;
  EXPECT(MS_OK, ms_engine_create(NULL, &engine));

  snprintf(path, sizeof path, "%s/external.onnx", bundles);
  EXPECT(MS_ERR_MODEL_EXTERNAL, ms_model_verify(engine, path, NULL, 0, &needed));
  refused(MS_ERR_MODEL_EXTERNAL, engine, path, "cpu");

  snprintf(path, sizeof path, "%s/tiny.onnx", bundles);
  snprintf(broken, sizeof broken, "%s/broken.onnx", folder);
  EXPECT(MS_OK, ms_model_verify(engine, path, NULL, 0, &needed));
  char *bytes = slurp(path, &size);
  spill(broken, bytes, size / 2);
  EXPECT(MS_ERR_MODEL_CORRUPT, ms_model_verify(engine, broken, NULL, 0, &needed));
  refused(MS_ERR_MODEL_CORRUPT, engine, broken, "cpu");

  const char format[] = "\"format\": 1";
  char *at = bytes;
  while (memcmp(at, format, sizeof format - 1) != 0) at++;
  at[sizeof format - 2] = '2';
  spill(broken, bytes, size);
  EXPECT(MS_ERR_MODEL_VERSION, ms_model_verify(engine, broken, NULL, 0, &needed));
  refused(MS_ERR_MODEL_VERSION, engine, broken, "cpu");
  at[sizeof format - 2] = '1';

  /* one bit at a time, all over the graph (the file but for its head, and the manifest at its tail): every change is noticed */
  int tampered = 0;
  for (size_t where = 64; where < size * 9 / 10; where += 211) {
    bytes[where] ^= 16;
    spill(broken, bytes, size);
    const ms_status status = ms_model_verify(engine, broken, NULL, 0, &needed);
    CHECK(status >= MS_ERR_MODEL_CORRUPT && status <= MS_ERR_MODEL_EXTERNAL);
    if (status == MS_ERR_MODEL_TAMPERED && tampered++ == 0) refused(MS_ERR_MODEL_TAMPERED, engine, broken, "cpu");
    bytes[where] ^= 16;
  }
  CHECK(tampered > 0);
  free(bytes);
  remove(broken);

  /* ONNX Runtime: not there, then there but without CUDA */
  const ms_engine_config config = {sizeof config, "/no/such/libonnxruntime.so", NULL};
  ms_engine without;
  EXPECT(MS_OK, ms_engine_create(&config, &without));
  refused(MS_ERR_RUNTIME_MISSING, without, path, "cpu");
  CHECK(strstr(ms_last_error(), "/no/such/libonnxruntime.so") != NULL);
  EXPECT(MS_OK, ms_engine_destroy(without));
  refused(MS_ERR_DEVICE_UNAVAILABLE, engine, path, "cuda");

  /* a pair that needs more memory than the limit leaves */
  const ms_image big = phantom(160, 160, 160, 1, 0);
  ms_options options;
  ms_result result = 99;
  EXPECT(MS_OK, ms_options_init(&options, sizeof options));
  options.model = "none";
  EXPECT(MS_ERR_OUT_OF_MEMORY, ms_register(engine, &big, &big, &options, NULL, NULL, &result));
  CHECK(result == 0);
  free((void *)big.voxels);
  EXPECT(MS_OK, ms_engine_destroy(engine));
}

static void test_disk_full(const char *folder) {
  const ms_image fixed = phantom(20, 18, 16, 1.5, 0), moving = phantom(24, 22, 18, 1.25, 3);
  char path[1024];
  ms_engine engine;
  ms_options options;
  ms_result result;
  EXPECT(MS_OK, ms_options_init(&options, sizeof options));
  EXPECT(MS_OK, ms_engine_create(NULL, &engine));
  options.initial = "com";
  options.model = "none";
  EXPECT(MS_OK, ms_register(engine, &fixed, &moving, &options, NULL, NULL, &result));
  snprintf(path, sizeof path, "%s/result", folder);
  EXPECT(MS_ERR_DISK_FULL, ms_result_save(result, path));
  DIR *left = opendir(folder);
  for (struct dirent *entry; left != NULL && (entry = readdir(left)) != NULL;)
    CHECK(strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0);
  closedir(left);
  free((void *)fixed.voxels), free((void *)moving.voxels);
}

int main(int argc, char **argv) {
  if (argc == 4 && strcmp(argv[1], "models") == 0)
    test_models(argv[2], argv[3]);
  else if (argc == 3 && strcmp(argv[1], "disk-full") == 0)
    test_disk_full(argv[2]);
  else
    return 2;
  if (failures) printf("%d failures\n", failures);
  return failures != 0;
}
