/* 1,000 registrations of a tiny pair in one process: the most that is resident while the first 500 run is the most while the
   last 500 do. One reading alone swings by some MiB with the moment of Go's collector. */
#include <stdio.h>
#include <unistd.h>

#include "phantom.h"

static double resident_mib(void) {
  long pages = 0;
  FILE *f = fopen("/proc/self/statm", "r");
  if (f == NULL || fscanf(f, "%*d %ld", &pages) != 1) pages = -1;
  if (f != NULL) fclose(f);
  return (double)pages * (double)sysconf(_SC_PAGESIZE) / (1 << 20);
}

int main(void) {
  ms_image fixed = phantom(14, 12, 12, 2, 0), moving = phantom(16, 14, 12, 2, 3);
  ms_options options;
  ms_engine engine;
  double first = 0, last = 0; /* the most after any of the first, and of the last 500 */
  if (ms_options_init(&options, sizeof options) || ms_engine_create(NULL, &engine)) return 2;
  options.initial = "com";
  options.model = "none";
  options.search = "off";
  options.refine = 0;
  options.threads = 1;
  for (int i = 1; i <= 1000; i++) {
    ms_result result;
    if (ms_register(engine, &fixed, &moving, &options, NULL, NULL, &result)) {
      printf("registration %d: %s\n", i, ms_last_error());
      return 1;
    }
    ms_result_destroy(result);
    const double resident = resident_mib();
    if (i <= 500 && resident > first) first = resident;
    if (i > 500 && resident > last) last = resident;
  }
  printf("%.1f MiB at most over the first 500 registrations, %.1f MiB over the last 500\n", first, last);
  ms_engine_destroy(engine);
  free((void *)fixed.voxels), free((void *)moving.voxels);
  return !(last > 0 && last - first < 4); /* one field leaked a registration would be at least 14 MiB */
}
