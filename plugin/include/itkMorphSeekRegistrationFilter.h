/** \file
 * Part of ITKMorphSeek, the ITK module over morphseek.h: the registration.
 */
#ifndef itkMorphSeekRegistrationFilter_h
#define itkMorphSeekRegistrationFilter_h

#include "itkDataObjectDecorator.h"
#include "itkDisplacementFieldTransform.h"
#include "itkImageToImageFilter.h"
#include "itkMorphSeekException.h"
#include "itkMorphSeekOptions.h"
#include "itkPoint.h"

#include <cstddef>
#include <exception>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace itk
{
/** \class MorphSeekRegistrationFilter
 * \brief Registers a moving 3-D image onto a fixed one: initial alignment, learned latent-policy steps, refinement.
 *
 * The images may have any scalar pixel type and differ in size, spacing, origin and direction. The output is the displacement
 * field on the fixed image's grid, in mm; GetTransform() is the same field as a transform, sharing its buffer. Both map points
 * of the fixed image to points of the moving image, as ResampleImageFilter wants them:
 *
 * \code
 *   using FilterType = itk::MorphSeekRegistrationFilter<ImageType>;
 *   auto registration = FilterType::New();
 *   registration->SetFixedImage(fixed);
 *   registration->SetMovingImage(moving);
 *   registration->Update();
 *
 *   auto warp = itk::MorphSeekWarpFilter<ImageType>::New();
 *   warp->SetInput(moving);
 *   warp->SetTransformInput(registration->GetTransformOutput());
 *   warp->SetReferenceImage(registration->GetOutput());
 *   warp->Update();
 * \endcode
 *
 * A linear initial transform is where the initial alignment starts. Any other is sampled on the fixed grid, and the refinement starts
 * from it: there is no other alignment and, with Search "auto", no search. If the refinement finds nothing closer, it is the output.
 *
 * Images of float are read in place, others are converted. The thread count is the smaller of
 * GetNumberOfWorkUnits() and the multi-threader's GetMaximumNumberOfThreads(). AbortGenerateDataOn(), from an observer
 * or another thread, ends Update() with ProcessAborted. Failures are MorphSeekException.
 *
 * For the method see R. Zhang, Y. Liu, D. Li, B. Xu, J. Wei, "MorphSeek: Fine-grained Latent Representation-Level Policy
 * Optimization for Deformable Image Registration".
 *
 * \tparam TFixedImage a 3-D image of scalars.
 * \tparam TMovingImage a 3-D image of scalars.
 * \tparam TDisplacementField a 3-D image of Vector<float, 3>, or of Vector<double, 3>; the latter is converted from float.
 *
 * \ingroup ITKMorphSeek RegistrationFilters
 */
template <typename TFixedImage,
          typename TMovingImage = TFixedImage,
          typename TDisplacementField = Image<Vector<float, 3>, 3>>
class ITK_TEMPLATE_EXPORT MorphSeekRegistrationFilter : public ImageToImageFilter<TFixedImage, TDisplacementField>
{
public:
  ITK_DISALLOW_COPY_AND_MOVE(MorphSeekRegistrationFilter);

  static constexpr unsigned int ImageDimension = 3;
  static_assert(TFixedImage::ImageDimension == 3 && TMovingImage::ImageDimension == 3 &&
                  TDisplacementField::ImageDimension == 3,
                "MorphSeek registers 3-D images; give 3-D image types");
  static_assert(std::is_arithmetic<typename TFixedImage::PixelType>::value &&
                  std::is_arithmetic<typename TMovingImage::PixelType>::value,
                "MorphSeek registers scalar images; give image types whose pixels are numbers");

  using Self = MorphSeekRegistrationFilter;
  using Superclass = ImageToImageFilter<TFixedImage, TDisplacementField>;
  using Pointer = SmartPointer<Self>;
  using ConstPointer = SmartPointer<const Self>;

  itkNewMacro(Self);
  itkTypeMacro(MorphSeekRegistrationFilter, ImageToImageFilter);

  using FixedImageType = TFixedImage;
  using MovingImageType = TMovingImage;
  using MaskImageType = Image<unsigned char, 3>;
  using RegionsImageType = Image<float, 3>;
  using InitialTransformType = Transform<double, 3, 3>;
  using DisplacementFieldType = TDisplacementField;
  using ComponentType = typename DisplacementFieldType::PixelType::ValueType;
  using TransformType = DisplacementFieldTransform<ComponentType, 3>;
  using DecoratedTransformType = DataObjectDecorator<Transform<ComponentType, 3, 3>>; // as ResampleImageFilter has it

  /** The image that stays; results lie on its grid. */
  virtual void
  SetFixedImage(const FixedImageType * image)
  {
    this->SetInput(image);
  }
  virtual const FixedImageType *
  GetFixedImage() const
  {
    return this->GetInput();
  }

  /** The image that is brought onto the fixed one. */
  itkSetInputMacro(MovingImage, MovingImageType);
  itkGetInputMacro(MovingImage, MovingImageType);

  /** Optional mask on the fixed image's grid: only voxels where it is not zero are compared. */
  itkSetInputMacro(FixedMask, MaskImageType);
  itkGetInputMacro(FixedMask, MaskImageType);

  /** Optional mask on the moving image's grid: only voxels where it is not zero are compared. */
  itkSetInputMacro(MovingMask, MaskImageType);
  itkGetInputMacro(MovingMask, MaskImageType);

  /** Optional label map on the fixed image's grid: each label but 0 moves as one rigid body. The initial transform must be linear, if
   * there is one. */
  itkSetInputMacro(RigidRegions, RegionsImageType);
  itkGetInputMacro(RigidRegions, RegionsImageType);

  /** Adds a pair of images (FLAIR beside T1) that also drives the registration. Each may have a grid of its own, in the physical space of
   * the fixed or the moving image. The fixed and moving images themselves have weight 1. */
  virtual void
  AddChannel(const FixedImageType * fixed, const MovingImageType * moving, double weight = 1.0)
  {
    this->AddChannel(fixed, moving, weight, false);
  }

  /** Adds a pair of label maps that also drives the registration: equal labels are brought onto each other; 0 is background. */
  virtual void
  AddLabelChannel(const RegionsImageType * fixed, const RegionsImageType * moving, double weight = 1.0)
  {
    this->AddChannel(fixed, moving, weight, true);
  }

  /** Removes all channels. */
  virtual void
  ClearChannels();

  virtual unsigned int
  GetNumberOfChannels() const
  {
    return static_cast<unsigned int>(m_Channels.size());
  }
  /** Optional points that mark the same places in both images, in the same order. SetLandmarkError() must be set: it says how exactly
   * they steer the registration. Update() refuses lists of different lengths. */
  using LandmarkPointType = Point<double, 3>;
  using LandmarkPointContainer = std::vector<LandmarkPointType>;
  virtual void
  SetFixedLandmarks(const LandmarkPointContainer & points)
  {
    m_FixedLandmarks = points;
    this->Modified();
  }
  itkGetConstReferenceMacro(FixedLandmarks, LandmarkPointContainer);
  virtual void
  SetMovingLandmarks(const LandmarkPointContainer & points)
  {
    m_MovingLandmarks = points;
    this->Modified();
  }
  itkGetConstReferenceMacro(MovingLandmarks, LandmarkPointContainer);

  /** Adds a sentence about where a file's header contradicts itself: it becomes a warning and a reason of the verdict, which is "check" at
   * most. MorphSeekNiftiDoubts() says such sentences:
   *
   * \code
   *   registration->AddDoubt("moving: its sform and its qform say two places, up to 8.66 mm apart.");
   * \endcode
   */
  virtual void
  AddDoubt(const std::string & sentence)
  {
    m_Doubts.push_back(sentence);
    this->Modified();
  }

  /** Removes all doubts, as for another pair of images: registration->ClearDoubts(). */
  virtual void
  ClearDoubts()
  {
    m_Doubts.clear();
    this->Modified();
  }

  /** Optional transform from fixed to moving points, of double or single precision; GetTransform() of another registration is one. The
   * class's description says where it enters. */
  virtual void
  SetInitialTransform(const InitialTransformType * transform)
  {
    this->SetInitial(transform);
  }
  virtual void
  SetInitialTransform(const Transform<float, 3, 3> * transform)
  {
    this->SetInitial(transform);
  }
#ifndef ITK_WRAPPING_PARSER // ITK's wrapping does not know the type
  virtual void
  SetInitialTransform(std::nullptr_t)
  {
    this->SetInitial<double>(nullptr);
  }
#endif

  /** The initial transform; null unless one of double precision is set. */
  virtual const InitialTransformType *
  GetInitialTransform() const
  {
    return this->GetInitial<double>();
  }

  /** \name Options
   * One for each of MORPHSEEK_OPTIONS. Their meanings, ranges and defaults are those of ms_options (see ms_options_json()). Update()
   * refuses values out of range. */
  ///@{
#define MORPHSEEK_ACCESSORS(Name, member, Type) \
  itkSetMacro(Name, Type);                      \
  itkGetConstMacro(Name, Type);
  MORPHSEEK_OPTIONS(MORPHSEEK_ACCESSORS)
#undef MORPHSEEK_ACCESSORS
  ///@}

  /** Path of the ONNX Runtime library. If empty, it is searched for as morphseek.h describes at ms_engine_config. */
  virtual void
  SetRuntimeLibrary(const std::string & path)
  {
    this->SetOfEngine(m_RuntimeLibrary, path);
  }
  itkGetConstMacro(RuntimeLibrary, std::string);

  /** A further folder of models; empty: none. */
  virtual void
  SetModelDirectory(const std::string & path)
  {
    this->SetOfEngine(m_ModelDirectory, path);
  }
  itkGetConstMacro(ModelDirectory, std::string);

  /** The output displacement field as a transform, wrapped as a DataObject for pipelines: a filter that gets it by SetTransformInput()
   * follows every run, where SetTransform(GetTransform()) keeps the one transform. */
  virtual DecoratedTransformType *
  GetTransformOutput()
  {
    return itkDynamicCastInDebugMode<DecoratedTransformType *>(this->ProcessObject::GetOutput(1));
  }
  virtual const DecoratedTransformType *
  GetTransformOutput() const
  {
    return itkDynamicCastInDebugMode<const DecoratedTransformType *>(this->ProcessObject::GetOutput(1));
  }

  /** The output displacement field as a transform; without a field before a run, and after one that failed. Every run makes a new one;
   * earlier ones stay as they are, where a ConstPointer holds them. */
  virtual const TransformType *
  GetTransform() const
  {
    return static_cast<const TransformType *>(this->GetTransformOutput()->Get());
  }

  /** Standard deviation of the displacement in mm, on the fixed image's grid; null unless the option Uncertainty is "on". Every run makes
   * a new one; earlier ones stay as they are, where a ConstPointer holds them. */
  virtual const Image<float, 3> *
  GetUncertaintyImage() const
  {
    return m_UncertaintyImage;
  }

  /** What the registration measured: a JSON object (similarity before and after, folding, seconds by stage, warnings, ...). Its members are
   * described in morphseek.h, at ms_result_metrics. */
  itkGetConstReferenceMacro(Metrics, std::string);

  /** Whether the registration can be trusted, as far as its images tell: "good", "check" (look at the result before you use it) or
   * "failed" (do not use it). Empty before Update(). */
  virtual std::string
  GetVerdict() const
  {
    return m_Verdict;
  }

  /** Why the verdict is not good, in plain words; empty where it is. */
  virtual std::vector<std::string>
  GetVerdictReasons() const
  {
    return m_VerdictReasons;
  }

  /** The verdict's estimate of the mean distance of points from where they belong, mm. */
  itkGetConstMacro(EstimatedError, double);

  /** Percentage of voxels where the output displacement field folds (NJD). */
  itkGetConstMacro(FoldingPercentage, double);

  using DataObjectPointerArraySizeType = ProcessObject::DataObjectPointerArraySizeType;
  using Superclass::MakeOutput;
  DataObject::Pointer
  MakeOutput(DataObjectPointerArraySizeType index) override;

  /** Also forgets what the last run measured: after one that fails there is no verdict. */
  void
  PrepareOutputs() override;

protected:
  MorphSeekRegistrationFilter();
  ~MorphSeekRegistrationFilter() override;

  /** The images may lie on different grids. */
  void
  VerifyInputInformation() const override
  {}

  void
  GenerateInputRequestedRegion() override;
  void
  EnlargeOutputRequestedRegion(DataObject * output) override
  {
    output->SetRequestedRegionToLargestPossibleRegion();
  }
  void
  GenerateData() override;
  void
  PrintSelf(std::ostream & os, Indent indent) const override;

private:
  using FloatImageType = Image<float, 3>;

  /** A result's handle, destroyed with it. */
  struct Result
  {
    ms_result handle{ 0 };
    Result() = default;
    ITK_DISALLOW_COPY_AND_MOVE(Result);
    ~Result()
    {
      if (handle != 0)
      {
        ms_result_destroy(handle);
      }
    }
  };

  /** The image itself if its pixels are float, else a converted copy; null for null. */
  template <typename TImage>
  FloatImageType::ConstPointer
  AsFloat(const TImage * image) const;

  /** The initial transform, if it is of this precision. */
  template <typename TPrecision>
  const Transform<TPrecision, 3, 3> *
  GetInitial() const;
  template <typename TPrecision>
  void
  SetInitial(const Transform<TPrecision, 3, 3> * transform);

  /** The displacements of a transform on the fixed grid, mm. */
  template <typename TPrecision>
  typename Image<Vector<float, 3>, 3>::Pointer
  Sampled(const Transform<TPrecision, 3, 3> * transform) const;

  template <typename TPrecision>
  void
  RegisterFrom(const Transform<TPrecision, 3, 3> * initial);

  /** The grid of an image, and its voxels if they are floats. */
  template <typename TImage>
  static ms_image
  Wrap(const TImage * image);
  ms_options
  MakeOptions() const;

  /** Changes what an engine is made with, so that the next run makes a new one. */
  void
  SetOfEngine(std::string & member, const std::string & value)
  {
    if (member != value)
    {
      this->CloseEngine();
      member = value;
      this->Modified();
    }
  }
  void
  CloseEngine()
  {
    if (m_Engine != 0)
    {
      ms_engine_destroy(std::exchange(m_Engine, 0));
    }
  }
  void
  WriteOutputs(ms_result result);
  static int
  OnProgress(const ms_progress * progress, void * self);

#define MORPHSEEK_MEMBER(Name, member, Type) Type m_##Name{};
  MORPHSEEK_OPTIONS(MORPHSEEK_MEMBER)
#undef MORPHSEEK_MEMBER
  LandmarkPointContainer m_FixedLandmarks;
  LandmarkPointContainer m_MovingLandmarks;
  std::string            m_RuntimeLibrary;
  std::string            m_ModelDirectory;

  std::vector<std::string> m_Doubts;

  struct Channel
  {
    std::string name; // the inputs are called this plus "Fixed" and "Moving"
    double      weight;
    bool        areLabels;
  };
  void
                       AddChannel(const DataObject * fixed, const DataObject * moving, double weight, bool areLabels);
  std::vector<Channel> m_Channels;

  ms_engine          m_Engine{ 0 };
  std::exception_ptr m_ObserverException; // thrown by an observer of our progress
  std::string        m_Metrics;

  std::string              m_Verdict;
  std::vector<std::string> m_VerdictReasons;
  double                   m_EstimatedError{ 0 };
  double                   m_FoldingPercentage{ 0 };

  typename FloatImageType::Pointer m_UncertaintyImage;
};
} // namespace itk

#ifndef ITK_MANUAL_INSTANTIATION
#  include "itkMorphSeekRegistrationFilter.hxx"
#endif

#endif
