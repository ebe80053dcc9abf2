/** \file
 * Part of ITKMorphSeek, the ITK module over morphseek.h: applying a transform to images and labels.
 */
#ifndef itkMorphSeekWarpFilter_h
#define itkMorphSeekWarpFilter_h

#include "itkImageDuplicator.h"
#include "itkImageRegionConstIterator.h"
#include "itkImageRegionIterator.h"
#include "itkMorphSeekFolding.h"
#include "itkNearestNeighborInterpolateImageFunction.h"
#include "itkResampleImageFilter.h"
#include "itkTransformToDisplacementFieldFilter.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace itk
{
/** \class MorphSeekWarpFilter
 * \brief Resamples an image or a label map of the moving space by a registration's transform, as the registration itself does,
 * and measures where the transform folds.
 *
 * A ResampleImageFilter with the settings of MorphSeek's own warp. The grid is the reference image's; Update() refuses to go without one,
 * and without a size. Images are interpolated linearly, and rounded where the output holds whole numbers; outside, and for voxels that
 * are NaN, infinite or beyond 1e37, the image's minimum is used. Labels take their nearest neighbour, and 0 outside.
 *
 * \tparam TPrecision the precision of the transform: the type of the displacement field's components.
 *
 * \ingroup ITKMorphSeek
 */
template <typename TInputImage, typename TOutputImage = TInputImage, typename TPrecision = float>
class ITK_TEMPLATE_EXPORT MorphSeekWarpFilter
  : public ResampleImageFilter<TInputImage, TOutputImage, double, TPrecision>
{
public:
  ITK_DISALLOW_COPY_AND_MOVE(MorphSeekWarpFilter);

  using Self = MorphSeekWarpFilter;
  using Superclass = ResampleImageFilter<TInputImage, TOutputImage, double, TPrecision>;
  using Pointer = SmartPointer<Self>;
  using ConstPointer = SmartPointer<const Self>;

  static_assert(
    TInputImage::ImageDimension == 3 && TOutputImage::ImageDimension == 3 &&
      std::is_arithmetic<typename TInputImage::PixelType>::value &&
      std::is_arithmetic<typename TOutputImage::PixelType>::value,
    "MorphSeekWarpFilter resamples 3-D images of numbers; for vectors and colours take ResampleImageFilter");

  itkNewMacro(Self);
  itkTypeMacro(MorphSeekWarpFilter, ResampleImageFilter);

  /** Whether the image is a label map or a mask. Off by default. */
  itkSetMacro(Labels, bool);
  itkGetConstMacro(Labels, bool);
  itkBooleanMacro(Labels);

  /** Percentage of the output's voxels where the transform folds (NJD). Every call samples the transform again. */
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
  MorphSeekWarpFilter()
  {
    this->UseReferenceImageOn();
  }
  ~MorphSeekWarpFilter() override = default;

  void
  VerifyPreconditions() const override
  {
    Superclass::VerifyPreconditions();
    if (this->GetReferenceImage() == nullptr && this->GetSize()[0] == 0)
    {
      itkExceptionMacro("There is no grid for the output: set the reference image, the registration's GetOutput().");
    }
  }

  // The background is the minimum of the whole input, even if only a part of the output is requested.
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
    const TInputImage *           image = this->GetInput();
    typename TInputImage::Pointer finiteImage;
    if (m_Labels)
    {
      this->SetDefaultPixelValue(PixelType{});
      this->SetInterpolator(NearestNeighborInterpolateImageFunction<TInputImage, double>::New());
    }
    else
    {
      auto minimum = NumericTraits<InputVoxelType>::max();
      bool someFinite = false, allFinite = true;
      for (ImageRegionConstIterator<TInputImage> it(image, image->GetLargestPossibleRegion()); !it.IsAtEnd(); ++it)
      {
        const bool finite = IsFinite(it.Get());
        someFinite |= finite;
        allFinite &= finite;
        minimum = finite ? std::min(minimum, it.Get()) : minimum;
      }
      // The minimum may lie outside the range of the output's type.
      const auto least = static_cast<double>(minimum);
      const auto lowest = static_cast<double>(NumericTraits<PixelType>::NonpositiveMin());
      const auto highest = static_cast<double>(NumericTraits<PixelType>::max());
      this->SetDefaultPixelValue(static_cast<PixelType>(std::min(std::max(least, lowest), highest)));
      this->SetInterpolator(RoundingInterpolateImageFunction::New());
      if (someFinite && !allFinite)
      {
        finiteImage = FiniteCopy(image, minimum);
      }
    }
    Superclass::BeforeThreadedGenerateData();
    if (finiteImage)
    {
      this->GetModifiableInterpolator()->SetInputImage(finiteImage); // AfterThreadedGenerateData resets it
    }
  }

  void
  PrintSelf(std::ostream & os, Indent indent) const override
  {
    Superclass::PrintSelf(os, indent);
    os << indent << "Labels: " << (m_Labels ? "On" : "Off") << '\n';
  }

private:
  using InputVoxelType = typename TInputImage::PixelType;

  // Rounds to the whole numbers of an output that has no others, where ResampleImageFilter would cut the decimals off.
  class RoundingInterpolateImageFunction : public LinearInterpolateImageFunction<TInputImage, double>
  {
  public:
    using Self = RoundingInterpolateImageFunction;
    using Linear = LinearInterpolateImageFunction<TInputImage, double>;
    using Pointer = SmartPointer<Self>;
    itkSimpleNewMacro(Self);

    typename Linear::OutputType
    EvaluateAtContinuousIndex(const typename Linear::ContinuousIndexType & index) const override
    {
      const auto value = Linear::EvaluateAtContinuousIndex(index);
      return std::is_integral<typename TOutputImage::PixelType>::value ? std::nearbyint(value) : value;
    }
  };

  // Whether a voxel is an intensity. Some programs mark missing voxels with the largest float, whose differences overflow.
  static bool
  IsFinite(InputVoxelType voxel)
  {
    if constexpr (std::is_floating_point<InputVoxelType>::value)
    {
      return std::abs(voxel) <= static_cast<InputVoxelType>(1e37);
    }
    return true;
  }

  static typename TInputImage::Pointer
  FiniteCopy(const TInputImage * image, InputVoxelType replacement)
  {
    auto duplicator = ImageDuplicator<TInputImage>::New();
    duplicator->SetInputImage(image);
    duplicator->Update();
    typename TInputImage::Pointer copy = duplicator->GetOutput();
    for (ImageRegionIterator<TInputImage> it(copy, copy->GetBufferedRegion()); !it.IsAtEnd(); ++it)
    {
      if (!IsFinite(it.Get()))
      {
        it.Set(replacement);
      }
    }
    return copy;
  }

  bool m_Labels{ false };
};
} // namespace itk

#endif
