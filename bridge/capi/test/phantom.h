/* A tiny pair for the tests: the same two-blob phantom, the moving one shifted and of another spacing. */
#ifndef MORPHSEEK_TEST_PHANTOM_H
#define MORPHSEEK_TEST_PHANTOM_H

#include <math.h>
#include <stdlib.h>

#include "morphseek.h"

/* Draws the phantom displaced by shift mm along x onto a grid of dims at spacing, centred at the LPS origin. */
static inline ms_image phantom(int64_t nx, int64_t ny, int64_t nz, double spacing, double shift) {
  ms_image image = {sizeof image, {nx, ny, nz}, {spacing, spacing, spacing}, {0, 0, 0}, {1, 0, 0, 0, 1, 0, 0, 0, 1},
                    NULL};
  float *voxels = (float *)malloc(sizeof(float) * (size_t)(nx * ny * nz)), *v = voxels;
  for (int a = 0; a < 3; a++) image.origin[a] = -0.5 * spacing * (double)(image.dims[a] - 1);
  for (int64_t k = 0; k < nz; k++)
    for (int64_t j = 0; j < ny; j++)
      for (int64_t i = 0; i < nx; i++) {
        double x = image.origin[0] + spacing * (double)i - shift;
        double y = image.origin[1] + spacing * (double)j;
        double z = image.origin[2] + spacing * (double)k;
        double body = exp(-(x * x / 60 + y * y / 40 + z * z / 90));
        double spot = exp(-((x - 4) * (x - 4) + (y + 3) * (y + 3) + (z - 2) * (z - 2)) / 8);
        *v++ = (float)(100 * body + 60 * spot);
      }
  image.voxels = voxels;
  return image;
}

static inline size_t voxel_count(const ms_image *image) {
  return (size_t)(image->dims[0] * image->dims[1] * image->dims[2]);
}

#endif
