/* Prints the size of every struct of the C interface and the offset of every member, for the ABI list. */
#include <stdio.h>

#include "morphseek.h"

#define SIZE(type) printf("%s %zu\n", #type, sizeof(type))
#define MEMBER(type, member) \
  printf("%s.%s %zu %zu\n", #type, #member, offsetof(type, member), sizeof(((type *)0)->member))

int main(void) {
  SIZE(ms_engine_config);
  MEMBER(ms_engine_config, size);
  MEMBER(ms_engine_config, runtime_library);
  MEMBER(ms_engine_config, model_dir);

  SIZE(ms_options);
  MEMBER(ms_options, size);
  /* options: written by go generate from engine/internal/option/table.go */
  MEMBER(ms_options, preset);
  MEMBER(ms_options, model);
  MEMBER(ms_options, initial);
  MEMBER(ms_options, search);
  MEMBER(ms_options, steps);
  MEMBER(ms_options, trajectories);
  MEMBER(ms_options, tau);
  MEMBER(ms_options, refine);
  MEMBER(ms_options, similarity);
  MEMBER(ms_options, device);
  MEMBER(ms_options, threads);
  MEMBER(ms_options, seed);
  MEMBER(ms_options, cache);
  MEMBER(ms_options, uncertainty);
  MEMBER(ms_options, smoothness);
  MEMBER(ms_options, along);
  MEMBER(ms_options, symmetric);
  MEMBER(ms_options, landmark_error);
  /* end of options */

  SIZE(ms_image);
  MEMBER(ms_image, size);
  MEMBER(ms_image, dims);
  MEMBER(ms_image, spacing);
  MEMBER(ms_image, origin);
  MEMBER(ms_image, direction);
  MEMBER(ms_image, voxels);

  SIZE(ms_pair);
  MEMBER(ms_pair, size);
  MEMBER(ms_pair, fixed);
  MEMBER(ms_pair, moving);
  MEMBER(ms_pair, fixed_mask);
  MEMBER(ms_pair, moving_mask);
  MEMBER(ms_pair, initial);
  MEMBER(ms_pair, initial_field);
  MEMBER(ms_pair, rigid);
  MEMBER(ms_pair, channels);
  MEMBER(ms_pair, channel_count);
  MEMBER(ms_pair, landmarks);
  MEMBER(ms_pair, landmark_names);
  MEMBER(ms_pair, landmark_count);
  MEMBER(ms_pair, doubts);
  MEMBER(ms_pair, doubt_count);

  SIZE(ms_channel);
  MEMBER(ms_channel, size);
  MEMBER(ms_channel, name);
  MEMBER(ms_channel, fixed);
  MEMBER(ms_channel, moving);
  MEMBER(ms_channel, weight);
  MEMBER(ms_channel, labels);

  SIZE(ms_verdict);
  MEMBER(ms_verdict, size);
  MEMBER(ms_verdict, grade);
  MEMBER(ms_verdict, reason_count);
  MEMBER(ms_verdict, error_mm);
  MEMBER(ms_verdict, njd_percent);

  SIZE(ms_progress);
  MEMBER(ms_progress, size);
  MEMBER(ms_progress, stage);
  MEMBER(ms_progress, fraction);
  MEMBER(ms_progress, message);

  SIZE(ms_engine);
  SIZE(ms_result);
  SIZE(ms_status);
  SIZE(ms_grade);
  SIZE(ms_interpolation);
  return 0;
}
