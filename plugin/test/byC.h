// A registration through morphseek.h alone, with which the tests and the benchmark compare the filter.
#ifndef byC_h
#define byC_h

#include "itkImage.h"
#include "itkMorphSeekException.h"

#include <string>
#include <vector>

// The result of RegisterByC.
struct ByC
{
  std::vector<float> field;       // mm, x, y, z interleaved
  std::vector<float> warped;      // empty unless asked for
  std::vector<float> uncertainty; // empty unless the options ask for it
  std::string        metrics;
};

// An ITK image as the C interface sees it; a null one is empty.
inline ms_image
Wrap(const itk::Image<float, 3> * image)
{
  ms_image wrapped = {};
  wrapped.size = sizeof wrapped;
  if (image == nullptr)
  {
    return wrapped;
  }
  const auto origin = image->TransformIndexToPhysicalPoint<double>(image->GetBufferedRegion().GetIndex());
  for (unsigned int row = 0; row < 3; ++row)
  {
    wrapped.dims[row] = static_cast<int64_t>(image->GetBufferedRegion().GetSize(row));
    wrapped.spacing[row] = image->GetSpacing()[row];
    wrapped.origin[row] = origin[row];
    for (unsigned int column = 0; column < 3; ++column)
    {
      wrapped.direction[3 * row + column] = image->GetDirection()[row][column];
    }
  }
  wrapped.voxels = image->GetBufferPointer();
  return wrapped;
}

inline void
ThrowUnlessOk(ms_status status)
{
  itk::MorphSeekException::ThrowUnlessOk(status, "the C interface");
}

// Registers; the masks and the matrix (3x4, fixed to moving) may be null.
inline ByC
RegisterByC(const itk::Image<float, 3> * fixed,
            const itk::Image<float, 3> * moving,
            const ms_options &           options,
            bool                         warp = false,
            const itk::Image<float, 3> * fixedMask = nullptr,
            const itk::Image<float, 3> * movingMask = nullptr,
            const double *               matrix = nullptr)
{
  const ms_image f = Wrap(fixed), m = Wrap(moving), fm = Wrap(fixedMask), mm = Wrap(movingMask);
  const ms_pair  pair = { sizeof pair,
                          &f,
                          &m,
                          fixedMask ? &fm : nullptr,
                          movingMask ? &mm : nullptr,
                          matrix,
                          nullptr,
                          nullptr,
                          nullptr,
                          0,
                          nullptr,
                          nullptr,
                          0,
                          nullptr,
                          0 };
  ms_engine      engine = 0;
  ms_result      result = 0;
  ThrowUnlessOk(ms_engine_create(nullptr, &engine));
  ThrowUnlessOk(
    ms_register_pair(engine, &pair, &options, [](const ms_progress *, void *) { return 0; }, nullptr, &result));

  ByC          made;
  const size_t voxels = fixed->GetBufferedRegion().GetNumberOfPixels();
  made.field.resize(3 * voxels);
  ThrowUnlessOk(ms_result_field_mm(result, made.field.data(), made.field.size()));
  if (warp)
  {
    made.warped.resize(voxels);
    ThrowUnlessOk(ms_result_warped(result, made.warped.data(), voxels));
  }
  if (std::string(options.uncertainty) == "on")
  {
    made.uncertainty.resize(voxels);
    ThrowUnlessOk(ms_result_uncertainty(result, made.uncertainty.data(), voxels));
  }
  size_t needed = 0;
  ThrowUnlessOk(ms_result_metrics(result, nullptr, 0, &needed));
  made.metrics.resize(needed);
  ThrowUnlessOk(ms_result_metrics(result, &made.metrics[0], needed, nullptr));
  ThrowUnlessOk(ms_result_destroy(result));
  ThrowUnlessOk(ms_engine_destroy(engine));
  return made;
}

#endif
