/* Registers a sphere onto one that lies 4 mm beside it, and prints where its centre goes and what the verdict is. */
#include <math.h>
#include <morphseek.h>
#include <stdio.h>

enum { N = 32 };

static float fixed_voxels[N * N * N], moving_voxels[N * N * N], warped[N * N * N];

static ms_image sphere(float *voxels, double centre) {
  ms_image image = {sizeof image, {N, N, N}, {1, 1, 1}, {0, 0, 0}, {1, 0, 0, 0, 1, 0, 0, 0, 1}, voxels};
  for (int k = 0; k < N; k++)
    for (int j = 0; j < N; j++)
      for (int i = 0; i < N; i++)
        voxels[(k * N + j) * N + i] = (float)fmax(0, 8 - sqrt(pow(i - centre, 2) + pow(j - 16, 2) + pow(k - 16, 2)));
  return image;
}

static int on_progress(const ms_progress *progress, void *user) {
  (void)user;
  printf("\r%3.0f %% %-8s", 100 * progress->fraction, progress->stage);
  return 0; /* non-zero cancels */
}

int main(void) {
  const ms_image fixed = sphere(fixed_voxels, 14), moving = sphere(moving_voxels, 18);
  double centre[3] = {14, 16, 16};
  ms_options options;
  ms_engine engine = 0;
  ms_result result = 0;
  ms_verdict verdict = {.size = sizeof verdict};
  char reason[1000];

  ms_options_init(&options, sizeof options);
  options.initial = "rigid";
  options.model = "none"; /* no network: the alignment, the search and the refinement need no weights */
  if (ms_engine_create(NULL, &engine) || ms_register(engine, &fixed, &moving, &options, on_progress, NULL, &result) ||
      ms_result_warped(result, warped, N * N * N) || ms_result_transform_points(result, centre, 1) ||
      ms_result_verdict(result, &verdict)) {
    fprintf(stderr, "%s\n", ms_last_error());
    return 1;
  }
  printf("\nThe centre of the fixed sphere is at (%.1f, %.1f, %.1f) in the moving image.\n", centre[0], centre[1],
         centre[2]);
  printf("%s, estimated error %.1f mm\n", verdict.grade == MS_GOOD ? "Good" : "Look before use", verdict.error_mm);
  for (size_t i = 0; i < verdict.reason_count; i++) {
    if (ms_result_reason(result, i, reason, sizeof reason, NULL) == MS_OK) printf("%s\n", reason);
  }
  ms_result_destroy(result);
  ms_engine_destroy(engine);
  return fabs(centre[0] - 18) > 0.5;
}
