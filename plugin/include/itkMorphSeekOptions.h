/** \file
 * Part of ITKMorphSeek: the options of a registration, as a list for the preprocessor.
 * Written by go generate from engine/internal/option; do not edit.
 */
#ifndef itkMorphSeekOptions_h
#define itkMorphSeekOptions_h

// clang-format off
/** Expands X(Name, member, type) for each member of ms_options but threads, which ITK's work units are. */
#define MORPHSEEK_OPTIONS(X) \
  X(Preset, preset, std::string) \
  X(Model, model, std::string) \
  X(Initial, initial, std::string) \
  X(Search, search, std::string) \
  X(Steps, steps, int) \
  X(Trajectories, trajectories, int) \
  X(Tau, tau, double) \
  X(Refine, refine, int) \
  X(Similarity, similarity, std::string) \
  X(Device, device, std::string) \
  X(Seed, seed, uint64_t) \
  X(Cache, cache, std::string) \
  X(Uncertainty, uncertainty, std::string) \
  X(Smoothness, smoothness, std::string) \
  X(Along, along, std::string) \
  X(Symmetric, symmetric, std::string) \
  X(LandmarkError, landmark_error, double)
// clang-format on

#endif
