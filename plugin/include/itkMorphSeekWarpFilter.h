/** \file
 * Part of ITKMorphSeek, the ITK module over morphseek.h: applying a transform to images and labels.
 */
#ifndef itkMorphSeekWarpFilter_h
#define itkMorphSeekWarpFilter_h

#include "itkMinimumMaximumImageCalculator.h"
#include "itkMorphSeekFolding.h"
#include "itkNearestNeighborInterpolateImageFunction.h"
#include "itkResampleImageFilter.h"
#include "itkTransformToDisplacementFieldFilter.h"

#include <algorithm>

namespace itk
{
/** \class MorphSeekWarpFilter
 * \brief Resamples an image or a label map of the moving space by a registration's transform, as the registration itself does,
 * and measures where the transform folds.
 *
 * A ResampleImageFilter with the settings of MorphSeek's own warp: the grid is the reference image's, an image is interpolated
 * linearly with its minimum outside, labels take their nearest neighbour with 0 outside.
 *
 * \tparam TPrecision the transform's, that of the displacement field's components.
 *
 * \ingroup ITKMorphSeek
 */
template <typename TInputImage, typename TOutputImage = TInputImage, typename TPrecision = float>
class ITK_TEMPLATE_EXPORT MorphSeekWarpFilter : public ResampleImageFilter<TInputImage, TOutputImage, double, TPrecision>
{
public:
  ITK_DISALLOW_COPY_AND_MOVE(MorphSeekWarpFilter);

  using Self = MorphSeekWarpFilter;
  using Superclass = ResampleImageFilter<TInputImage, TOutputImage, double, TPrecision>;
  using Pointer = SmartPointer<Self>;
  using ConstPointer = SmartPointer<const Self>;

  itkNewMacro(Self);
  itkTypeMacro(MorphSeekWarpFilter, ResampleImageFilter);

  /** Whether the image is a label map or a mask. Off by default. */
  itkSetMacro(Labels, bool);
  itkGetConstMacro(Labels, bool);
  itkBooleanMacro(Labels);

  /** Percentage of the output's voxels where the transform folds (NJD). Samples the transform anew at every call. */
  double
  GetFoldingPercentage() const
  {
    auto sampled = TransformToDisplacementFieldFilter<Image<Vector<TPrecision, 3>, 3>, TPrecision>::New();
    sampled->SetTransform(this->GetTransform());
    sampled->SetReferenceImage(this->GetOutput());
    sampled->UseReferenceImageOn();
    sampled->Update();
    return MorphSeekFoldingPercentage(sampled->GetOutput());
  }

protected:
  MorphSeekWarpFilter() { this->UseReferenceImageOn(); }
  ~MorphSeekWarpFilter() override = default;

  // The background is the minimum of the whole input, whatever part of the output is asked for.
  void
  GenerateInputRequestedRegion() override
  {
    Superclass::GenerateInputRequestedRegion();
    if (!m_Labels && this->GetInput())
    {
      const_cast<TInputImage *>(this->GetInput())->SetRequestedRegionToLargestPossibleRegion();
    }
  }

  void
  BeforeThreadedGenerateData() override
  {
    using PixelType = typename TOutputImage::PixelType;
    const TInputImage * image = this->GetInput();
    if (m_Labels)
    {
      this->SetDefaultPixelValue(PixelType{});
      this->SetInterpolator(NearestNeighborInterpolateImageFunction<TInputImage, double>::New());
    }
    else
    {
      auto calculator = MinimumMaximumImageCalculator<TInputImage>::New();
      calculator->SetImage(image);
      calculator->ComputeMinimum();
      // The output's type may not hold it.
      const auto least = static_cast<double>(calculator->GetMinimum());
      const auto lowest = static_cast<double>(NumericTraits<PixelType>::NonpositiveMin());
      const auto highest = static_cast<double>(NumericTraits<PixelType>::max());
      this->SetDefaultPixelValue(static_cast<PixelType>(std::min(std::max(least, lowest), highest)));
      this->SetInterpolator(LinearInterpolateImageFunction<TInputImage, double>::New());
    }
    Superclass::BeforeThreadedGenerateData();
  }

  void
  PrintSelf(std::ostream & os, Indent indent) const override
  {
    Superclass::PrintSelf(os, indent);
    os << indent << "Labels: " << (m_Labels ? "On" : "Off") << '\n';
  }

private:
  bool m_Labels{ false };
};
} // namespace itk

#endif
