/* Registers a sphere onto one that lies 4 mm beside it, and prints where its centre goes and what the verdict is. */
#include <math.h>
#include <morphseek.h>
#include <stdio.h>
#include <string.h>

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
  char metrics[1 << 16];
  const char *verdict;

  ms_options_init(&options, sizeof options);
  options.initial = "rigid";
  options.model = "none"; /* no network: the alignment, the search and the refinement need no weights */
  if (ms_engine_create(NULL, &engine) || ms_register(engine, &fixed, &moving, &options, on_progress, NULL, &result) ||
      ms_result_warped(result, warped, N * N * N) || ms_result_transform_points(result, centre, 1) ||
      ms_result_metrics(result, metrics, sizeof metrics, NULL)) {
    fprintf(stderr, "%s\n", ms_last_error());
    return 1;
  }
  printf("\nThe centre of the fixed sphere is at (%.1f, %.1f, %.1f) in the moving image.\n", centre[0], centre[1],
         centre[2]);
  verdict = strstr(metrics, "\"verdict\":");
  printf("%.*s}\n", (int)strcspn(verdict, "}"), verdict);
  ms_result_destroy(result);
  ms_engine_destroy(engine);
  return fabs(centre[0] - 18) > 0.5;
}
