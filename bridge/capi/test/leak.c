/* 1,000 registrations of a tiny pair in one process: the resident memory after the first 200 is that after all. */
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
  double settled = 0;
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
    if (i == 200) settled = resident_mib();
  }
  const double grown = resident_mib() - settled;
  printf("%.1f MiB after 200 registrations, %+.1f MiB over the next 800\n", settled, grown);
  ms_engine_destroy(engine);
  free((void *)fixed.voxels), free((void *)moving.voxels);
  return !(grown < 4); /* one field leaked a registration would be 18 MiB */
}
