// Measures what the filter costs over the C interface: itkMorphSeekBenchmark filter|c FIXED MOVING registers two images in memory. It
// prints the seconds until the field is there, the seconds that the engine counts as its own, and in MiB the peak memory of the process
// and the size of the fixed image. benchmark.py runs both by turns. Nothing is refined: a short registration shows the filter's share.
#include "byC.h"
#include "itkImageFileReader.h"
#include "itkMorphSeekRegistrationFilter.h"

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <sys/resource.h>

namespace
{
using ImageType = itk::Image<float, 3>;

// Each function returns the registration's metrics and keeps its outputs until then.
std::string
ByFilter(const ImageType * fixed, const ImageType * moving)
{
  auto filter = itk::MorphSeekRegistrationFilter<ImageType>::New();
  filter->SetFixedImage(fixed);
  filter->SetMovingImage(moving);
  filter->SetPreset("fast");
  filter->SetModel("none");
  filter->SetRefine(0);
  filter->Update();
  return filter->GetMetrics();
}

std::string
ByCInterface(const ImageType * fixed, const ImageType * moving)
{
  ms_options options;
  ThrowUnlessOk(ms_options_init(&options, sizeof options));
  options.preset = "fast";
  options.model = "none";
  options.refine = 0;
  options.threads = static_cast<int32_t>(itk::MultiThreaderBase::GetGlobalDefaultNumberOfThreads());
  return RegisterByC(fixed, moving, options).metrics;
}
} // namespace

int
main(int argc, char ** argv)
{
  if (argc != 4)
  {
    std::cerr << "usage: itkMorphSeekBenchmark filter|c FIXED MOVING\n";
    return 2;
  }
  const auto        fixed = itk::ReadImage<ImageType>(argv[2]), moving = itk::ReadImage<ImageType>(argv[3]);
  const auto        start = std::chrono::steady_clock::now();
  const std::string metrics = argv[1] == std::string("c") ? ByCInterface(fixed, moving) : ByFilter(fixed, moving);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const std::string                   total = "\"total\":";
  rusage                              usage;
  getrusage(RUSAGE_SELF, &usage);
  std::cout << seconds.count() << ' ' << std::strtod(metrics.c_str() + metrics.find(total) + total.size(), nullptr)
            << ' ' << usage.ru_maxrss / 1024.0 << ' '
            << fixed->GetBufferedRegion().GetNumberOfPixels() * sizeof(float) / 1048576.0 << '\n';
}
