// Eight C++ threads register at once through one engine, each a pair of its own; every field is bit by bit the one that a
// single thread computed before. Meanwhile each thread's last error stays its own.
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "phantom.h"

namespace {

constexpr int kThreads = 8, kRounds = 5;

std::vector<float> registered_field(ms_engine engine, double shift) {
  ms_image fixed = phantom(20, 18, 16, 1.5, 0), moving = phantom(24, 22, 18, 1.25, shift);
  ms_options options;
  ms_options_init(&options, sizeof options);
  options.initial = "rigid";
  options.model = "none";
  options.threads = 2;
  ms_result result = 0;
  std::vector<float> field(3 * voxel_count(&fixed));
  if (ms_register(engine, &fixed, &moving, &options, nullptr, nullptr, &result) != MS_OK ||
      ms_result_field(result, field.data(), field.size()) != MS_OK) {
    std::printf("shift %g: %s\n", shift, ms_last_error());
    field.clear();
  }
  ms_result_destroy(result);
  std::free(const_cast<float *>(fixed.voxels));
  std::free(const_cast<float *>(moving.voxels));
  return field;
}

bool own_error(int thread) {
  const std::string model = "no such model " + std::to_string(thread);
  ms_result_load(model.c_str(), nullptr);
  return ms_result_destroy(1000000 + thread) == MS_ERR_INVALID_HANDLE &&
         std::strstr(ms_last_error(), std::to_string(1000000 + thread).c_str()) != nullptr;
}

} // namespace

int main() {
  ms_engine engine = 0;
  if (ms_engine_create(nullptr, &engine) != MS_OK) return 2;
  std::vector<std::vector<float>> alone(kThreads);
  for (int t = 0; t < kThreads; t++) alone[t] = registered_field(engine, 0.5 * t);

  std::vector<int> wrong(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; t++)
    threads.emplace_back([&, t] {
      for (int round = 0; round < kRounds; round++) {
        const std::vector<float> field = registered_field(engine, 0.5 * t);
        wrong[t] += field.empty() || field != alone[t] || !own_error(t);
      }
    });
  int failures = 0;
  for (int t = 0; t < kThreads; t++) {
    threads[t].join();
    failures += wrong[t];
  }
  ms_engine_destroy(engine);
  std::printf("%d of %d registrations wrong\n", failures, kThreads * kRounds);
  return failures != 0;
}
