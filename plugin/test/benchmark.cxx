// What the filter costs over the C interface: itkMorphSeekBenchmark filter|c FIXED MOVING registers two images that are in memory
// and prints the seconds from there to the field, those of them that the engine counts as its own, and the peak memory.
// benchmark.py runs both by turns.
#include "itkImageFileReader.h"
#include "itkMorphSeekRegistrationFilter.h"

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <sys/resource.h>
#include <vector>

namespace
{
using ImageType = itk::Image<float, 3>;

ms_image
Wrap(const ImageType * image)
{
  ms_image wrapped = {};
  wrapped.size = sizeof wrapped;
  for (unsigned int row = 0; row < 3; ++row)
  {
    wrapped.dims[row] = static_cast<int64_t>(image->GetBufferedRegion().GetSize(row));
    wrapped.spacing[row] = image->GetSpacing()[row];
    wrapped.origin[row] = image->GetOrigin()[row];
    for (unsigned int column = 0; column < 3; ++column)
    {
      wrapped.direction[3 * row + column] = image->GetDirection()[row][column];
    }
  }
  wrapped.voxels = image->GetBufferPointer();
  return wrapped;
}

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

void
Check(ms_status status)
{
  itk::MorphSeekException::ThrowUnlessOk(status, "benchmark");
}

std::string
ByC(const ImageType * fixed, const ImageType * moving)
{
  ms_engine  engine;
  ms_result  result;
  ms_options options;
  size_t     needed;
  Check(ms_options_init(&options, sizeof options));
  options.preset = "fast";
  options.model = "none";
  options.refine = 0;
  options.threads = static_cast<int32_t>(itk::MultiThreaderBase::GetGlobalDefaultNumberOfThreads());
  const ms_image f = Wrap(fixed), m = Wrap(moving);
  Check(ms_engine_create(nullptr, &engine));
  Check(ms_register(engine, &f, &m, &options, [](const ms_progress *, void *) { return 0; }, nullptr, &result));
  const size_t         n = 3 * fixed->GetBufferedRegion().GetNumberOfPixels();
  std::unique_ptr<float[]> field(new float[n]);
  Check(ms_result_field_mm(result, field.get(), n));
  Check(ms_result_metrics(result, nullptr, 0, &needed));
  std::string metrics(needed, '\0');
  Check(ms_result_metrics(result, &metrics[0], needed, nullptr));
  Check(ms_result_destroy(result));
  Check(ms_engine_destroy(engine));
  return metrics;
}
} // namespace

int
main(int argc, char ** argv)
{
  if (argc != 4)
  {
    return 2;
  }
  const auto        fixed = itk::ReadImage<ImageType>(argv[2]), moving = itk::ReadImage<ImageType>(argv[3]);
  const auto        start = std::chrono::steady_clock::now();
  const std::string metrics = argv[1] == std::string("c") ? ByC(fixed, moving) : ByFilter(fixed, moving);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const std::string total = "\"total\":";
  rusage            usage;
  getrusage(RUSAGE_SELF, &usage);
  std::cout << seconds.count() << ' ' << std::strtod(metrics.c_str() + metrics.find(total) + total.size(), nullptr) << ' ' << usage.ru_maxrss / 1024.0 << ' '
            << fixed->GetBufferedRegion().GetNumberOfPixels() * sizeof(float) / 1048576.0 << '\n';
}
