#ifndef itkMorphSeekRegistrationFilter_hxx
#define itkMorphSeekRegistrationFilter_hxx

#include "itkCastImageFilter.h"
#include "itkImageRegionIteratorWithIndex.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace itk
{
/** An option as ms_options has it. */
inline const char *
MorphSeekPlain(const std::string & text)
{
  return text.c_str();
}
template <typename TNumber>
TNumber
MorphSeekPlain(TNumber number)
{
  return number;
}

template <typename TFixedImage, typename TMovingImage, typename TDisplacementField>
MorphSeekRegistrationFilter<TFixedImage, TMovingImage, TDisplacementField>::MorphSeekRegistrationFilter()
{
  ms_options defaults;
  MorphSeekException::ThrowUnlessOk(ms_options_init(&defaults, sizeof defaults), ITK_LOCATION);
#define MORPHSEEK_DEFAULT(Name, member, Type) m_##Name = defaults.member;
  MORPHSEEK_OPTIONS(MORPHSEEK_DEFAULT)
#undef MORPHSEEK_DEFAULT

  this->AddRequiredInputName("MovingImage");
  this->AddOptionalInputName("FixedMask");
  this->AddOptionalInputName("MovingMask");
  this->AddOptionalInputName("RigidRegions");
  this->AddOptionalInputName("InitialTransform");
  this->SetNumberOfRequiredOutputs(2);
  this->SetNthOutput(1, this->MakeOutput(1));
  this->ReleaseDataBeforeUpdateFlagOn(); // so that a transform of an earlier run keeps its buffer
}

template <typename TFixedImage, typename TMovingImage, typename TDisplacementField>
MorphSeekRegistrationFilter<TFixedImage, TMovingImage, TDisplacementField>::~MorphSeekRegistrationFilter()
{
  this->CloseEngine();
}

template <typename TFixedImage, typename TMovingImage, typename TDisplacementField>
void
MorphSeekRegistrationFilter<TFixedImage, TMovingImage, TDisplacementField>::AddChannel(const DataObject * fixed,
                                                                                       const DataObject * moving,
                                                                                       double             weight,
                                                                                       bool               areLabels)
{
  if (fixed == nullptr || moving == nullptr)
  {
    itkExceptionMacro("A channel needs an image of the fixed and one of the moving side; one is null.");
  }
  const std::string name = "Channel" + std::to_string(m_Channels.size() + 2); // the images themselves are the first
  this->ProcessObject::SetInput(name + "Fixed", const_cast<DataObject *>(fixed));
  this->ProcessObject::SetInput(name + "Moving", const_cast<DataObject *>(moving));
  m_Channels.push_back({ name, weight, areLabels });
  this->Modified();
}

template <typename TFixedImage, typename TMovingImage, typename TDisplacementField>
void
MorphSeekRegistrationFilter<TFixedImage, TMovingImage, TDisplacementField>::ClearChannels()
{
  for (const Channel & channel : m_Channels)
  {
    this->RemoveInput(channel.name + "Fixed");
    this->RemoveInput(channel.name + "Moving");
  }
  m_Channels.clear();
  this->Modified();
}

template <typename TFixedImage, typename TMovingImage, typename TDisplacementField>
DataObject::Pointer
MorphSeekRegistrationFilter<TFixedImage, TMovingImage, TDisplacementField>::MakeOutput(
  DataObjectPointerArraySizeType index)
{
  if (index == 1)
  {
    auto decorated = DecoratedTransformType::New();
    decorated->Set(TransformType::New());
    return decorated.GetPointer();
  }
  return Superclass::MakeOutput(index);
}

template <typename TFixedImage, typename TMovingImage, typename TDisplacementField>
void
MorphSeekRegistrationFilter<TFixedImage, TMovingImage, TDisplacementField>::GenerateInputRequestedRegion()
{
  Superclass::GenerateInputRequestedRegion();
  for (const auto & name : this->GetInputNames())
  {
    if (DataObject * input = this->ProcessObject::GetInput(name))
    {
      input->SetRequestedRegionToLargestPossibleRegion();
    }
  }
}

template <typename TFixedImage, typename TMovingImage, typename TDisplacementField>
void
MorphSeekRegistrationFilter<TFixedImage, TMovingImage, TDisplacementField>::PrepareOutputs()
{
  Superclass::PrepareOutputs();
  this->GetTransformOutput()->Set(
    TransformType::New()); // a filter that has it as input needs one even if this run fails
  m_Metrics.clear();
  m_Verdict.clear();
  m_VerdictReasons.clear();
  m_EstimatedError = m_FoldingPercentage = 0;
  m_UncertaintyImage = nullptr;
}

template <typename TFixedImage, typename TMovingImage, typename TDisplacementField>
template <typename TImage>
auto
MorphSeekRegistrationFilter<TFixedImage, TMovingImage, TDisplacementField>::AsFloat(const TImage * image) const ->
  typename FloatImageType::ConstPointer
{
  if (image == nullptr)
  {
    return nullptr;
  }
  if constexpr (std::is_same<TImage, FloatImageType>::value)
  {
    return image;
  }
  else
  {
    auto detached = TImage::New(); // so that the conversion does not run the pipeline before us again
    detached->Graft(image);
    auto cast = CastImageFilter<TImage, FloatImageType>::New();
    cast->SetInput(detached);
    cast->SetNumberOfWorkUnits(this->GetNumberOfWorkUnits());
    cast->Update();
    return cast->GetOutput();
  }
}

template <typename TFixedImage, typename TMovingImage, typename TDisplacementField>
template <typename TPrecision>
const Transform<TPrecision, 3, 3> *
MorphSeekRegistrationFilter<TFixedImage, TMovingImage, TDisplacementField>::GetInitial() const
{
  using DecoratorType = DataObjectDecorator<Transform<TPrecision, 3, 3>>;
  const auto * decorated = dynamic_cast<const DecoratorType *>(this->ProcessObject::GetInput("InitialTransform"));
  return decorated == nullptr ? nullptr : decorated->Get();
}

template <typename TFixedImage, typename TMovingImage, typename TDisplacementField>
template <typename TPrecision>
void
MorphSeekRegistrationFilter<TFixedImage, TMovingImage, TDisplacementField>::SetInitial(
  const Transform<TPrecision, 3, 3> * transform)
{
  if (transform == nullptr)
  {
    this->ProcessObject::SetInput("InitialTransform", nullptr);
  }
  else if (transform != this->GetInitial<TPrecision>())
  {
    auto decorated = DataObjectDecorator<Transform<TPrecision, 3, 3>>::New();
    decorated->Set(transform);
    this->ProcessObject::SetInput("InitialTransform", decorated);
  }
}

template <typename TFixedImage, typename TMovingImage, typename TDisplacementField>
template <typename TPrecision>
typename Image<Vector<float, 3>, 3>::Pointer
MorphSeekRegistrationFilter<TFixedImage, TMovingImage, TDisplacementField>::Sampled(
  const Transform<TPrecision, 3, 3> * transform) const
{
  using FieldType = Image<Vector<float, 3>, 3>;
  const auto * fixed = this->GetFixedImage();
  auto         field = FieldType::New();
  field->CopyInformation(fixed);
  field->SetRegions(fixed->GetBufferedRegion());
  field->Allocate();
  this->GetMultiThreader()->template ParallelizeImageRegion<3>(
    field->GetBufferedRegion(),
    [&field, transform](const typename FieldType::RegionType & region) {
      for (ImageRegionIteratorWithIndex<FieldType> it(field, region); !it.IsAtEnd(); ++it)
      {
        const auto point = field->template TransformIndexToPhysicalPoint<TPrecision>(it.GetIndex());
        const auto moved = transform->TransformPoint(point) - point;
        for (unsigned int axis = 0; axis < 3; ++axis)
        {
          it.Value()[axis] = static_cast<float>(moved[axis]);
        }
      }
    },
    nullptr);
  return field;
}

template <typename TFixedImage, typename TMovingImage, typename TDisplacementField>
template <typename TImage>
ms_image
MorphSeekRegistrationFilter<TFixedImage, TMovingImage, TDisplacementField>::Wrap(const TImage * image)
{
  const auto region = image->GetBufferedRegion();
  const auto origin =
    image->template TransformIndexToPhysicalPoint<double>(region.GetIndex()); // the index need not begin at 0
  ms_image wrapped = {};
  wrapped.size = sizeof wrapped;
  for (unsigned int axis = 0; axis < 3; ++axis)
  {
    wrapped.dims[axis] = static_cast<int64_t>(region.GetSize(axis));
    wrapped.spacing[axis] = image->GetSpacing()[axis];
    wrapped.origin[axis] = origin[axis];
    for (unsigned int column = 0; column < 3; ++column)
    {
      wrapped.direction[3 * axis + column] = image->GetDirection()[axis][column];
    }
  }
  wrapped.voxels = reinterpret_cast<const float *>(image->GetBufferPointer()); // a vector's components lie side by side
  return wrapped;
}

template <typename TFixedImage, typename TMovingImage, typename TDisplacementField>
ms_options
MorphSeekRegistrationFilter<TFixedImage, TMovingImage, TDisplacementField>::MakeOptions() const
{
  ms_options options;
  MorphSeekException::ThrowUnlessOk(ms_options_init(&options, sizeof options), ITK_LOCATION);
#define MORPHSEEK_ASSIGN(Name, member, Type) options.member = MorphSeekPlain(m_##Name);
  MORPHSEEK_OPTIONS(MORPHSEEK_ASSIGN)
#undef MORPHSEEK_ASSIGN
  options.threads = static_cast<int32_t>(
    std::min<ThreadIdType>(this->GetNumberOfWorkUnits(), this->GetMultiThreader()->GetMaximumNumberOfThreads()));
  return options;
}

template <typename TFixedImage, typename TMovingImage, typename TDisplacementField>
int
MorphSeekRegistrationFilter<TFixedImage, TMovingImage, TDisplacementField>::OnProgress(const ms_progress * progress,
                                                                                       void *              self)
{
  auto * filter = static_cast<Self *>(self);
  try
  {
    filter->UpdateProgress(static_cast<float>(progress->fraction));
  }
  catch (...) // no exception may cross the C interface
  {
    filter->m_ObserverException = std::current_exception();
    return 1;
  }
  return filter->GetAbortGenerateData() ? 1 : 0;
}

template <typename TFixedImage, typename TMovingImage, typename TDisplacementField>
void
MorphSeekRegistrationFilter<TFixedImage, TMovingImage, TDisplacementField>::GenerateData()
{
  if (const auto * single = this->GetInitial<float>())
  {
    this->RegisterFrom(single);
  }
  else
  {
    this->RegisterFrom(this->GetInitial<double>());
  }
}

template <typename TFixedImage, typename TMovingImage, typename TDisplacementField>
template <typename TPrecision>
void
MorphSeekRegistrationFilter<TFixedImage, TMovingImage, TDisplacementField>::RegisterFrom(
  const Transform<TPrecision, 3, 3> * initial)
{
  using PointType = typename Transform<TPrecision, 3, 3>::InputPointType;
  const bool isLinear = initial == nullptr || initial->IsLinear();
  Result     result;
  {
    auto   fixed = this->AsFloat(this->GetFixedImage());
    auto   moving = this->AsFloat(this->GetMovingImage());
    auto   fixedMask = this->AsFloat(this->GetFixedMask());
    auto   movingMask = this->AsFloat(this->GetMovingMask());
    auto   rigid = this->AsFloat(this->GetRigidRegions());
    double matrix[12];
    if (initial != nullptr && isLinear)
    {
      const double reach = 1000; // mm from the origin: far enough for the matrix of a single-precision transform
      const auto   offset = initial->TransformPoint(PointType(0.0));
      for (unsigned int column = 0; column < 3; ++column)
      {
        PointType point(0.0);
        point[column] = reach;
        const auto mapped = initial->TransformPoint(point) - offset;
        for (unsigned int row = 0; row < 3; ++row)
        {
          matrix[4 * row + column] = mapped[row] / reach;
        }
      }
      for (unsigned int row = 0; row < 3; ++row)
      {
        matrix[4 * row + 3] = offset[row];
      }
    }

    const ms_image fixedImage = Wrap(fixed.GetPointer()), movingImage = Wrap(moving.GetPointer());
    const ms_image fixedMaskImage = fixedMask ? Wrap(fixedMask.GetPointer()) : ms_image{},
                   movingMaskImage = movingMask ? Wrap(movingMask.GetPointer()) : ms_image{},
                   rigidImage = rigid ? Wrap(rigid.GetPointer()) : ms_image{};
    std::vector<FloatImageType::ConstPointer> converted; // the channels' images: fixed, moving, fixed, ...
    std::vector<ms_image>                     channelImages;
    std::vector<ms_channel>                   channels;
    std::vector<const ms_channel *>           channelPointers;
    for (const Channel & channel : m_Channels)
    {
      const auto * fixedInput = this->ProcessObject::GetInput(channel.name + "Fixed");
      const auto * movingInput = this->ProcessObject::GetInput(channel.name + "Moving");
      if (channel.areLabels)
      {
        converted.push_back(this->AsFloat(static_cast<const RegionsImageType *>(fixedInput)));
        converted.push_back(this->AsFloat(static_cast<const RegionsImageType *>(movingInput)));
      }
      else
      {
        converted.push_back(this->AsFloat(static_cast<const FixedImageType *>(fixedInput)));
        converted.push_back(this->AsFloat(static_cast<const MovingImageType *>(movingInput)));
      }
    }
    for (const auto & image : converted)
    {
      channelImages.push_back(Wrap(image.GetPointer()));
    }
    for (size_t i = 0; i < m_Channels.size(); ++i)
    {
      channels.push_back({ sizeof(ms_channel), nullptr, &channelImages[2 * i], &channelImages[2 * i + 1],
                           m_Channels[i].weight, m_Channels[i].areLabels ? 1 : 0 });
    }
    for (const ms_channel & channel : channels)
    {
      channelPointers.push_back(&channel);
    }
    typename Image<Vector<float, 3>, 3>::Pointer field;
    ms_image                                     fieldImage = {};
    if (!isLinear)
    {
      field = this->Sampled(initial);
      fieldImage = Wrap(field.GetPointer());
    }
    if (m_FixedLandmarks.size() != m_MovingLandmarks.size())
    {
      const std::string counts = "there are " + std::to_string(m_FixedLandmarks.size()) + " fixed landmarks and " +
                                 std::to_string(m_MovingLandmarks.size()) + " moving ones";
      throw MorphSeekException(__FILE__, __LINE__, MS_ERR_INVALID_ARGUMENT,
                               counts + "; give as many of each, in one order", ITK_LOCATION);
    }
    std::vector<double> landmarks;
    for (size_t i = 0; i < m_FixedLandmarks.size(); ++i)
    {
      landmarks.insert(landmarks.end(), m_FixedLandmarks[i].Begin(), m_FixedLandmarks[i].End());
      landmarks.insert(landmarks.end(), m_MovingLandmarks[i].Begin(), m_MovingLandmarks[i].End());
    }
    std::vector<const char *> doubts;
    for (const std::string & sentence : m_Doubts)
    {
      doubts.push_back(sentence.c_str());
    }
    const ms_pair    pair = { sizeof pair,
                              &fixedImage,
                              &movingImage,
                              fixedMask ? &fixedMaskImage : nullptr,
                              movingMask ? &movingMaskImage : nullptr,
                              initial != nullptr && isLinear ? matrix : nullptr,
                              isLinear ? nullptr : &fieldImage,
                              rigid ? &rigidImage : nullptr,
                              channelPointers.empty() ? nullptr : channelPointers.data(),
                              channelPointers.size(),
                              landmarks.empty() ? nullptr : landmarks.data(),
                              nullptr,
                              m_FixedLandmarks.size(),
                              doubts.data(),
                              doubts.size() };
    const ms_options options = this->MakeOptions();
    if (m_Engine == 0)
    {
      const ms_engine_config config = { sizeof config, m_RuntimeLibrary.c_str(), m_ModelDirectory.c_str() };
      MorphSeekException::ThrowUnlessOk(ms_engine_create(&config, &m_Engine), ITK_LOCATION);
    }
    const ms_status status = ms_register_pair(m_Engine, &pair, &options, &Self::OnProgress, this, &result.handle);
    if (m_ObserverException)
    {
      std::rethrow_exception(std::exchange(m_ObserverException, nullptr));
    }
    if (status == MS_ERR_CANCELLED)
    {
      throw ProcessAborted(__FILE__, __LINE__);
    }
    MorphSeekException::ThrowUnlessOk(status, ITK_LOCATION);
  } // frees the converted images before the outputs are allocated

  this->WriteOutputs(result.handle);
}

template <typename TFixedImage, typename TMovingImage, typename TDisplacementField>
void
MorphSeekRegistrationFilter<TFixedImage, TMovingImage, TDisplacementField>::WriteOutputs(ms_result result)
{
  const auto text = [](auto write) {
    size_t needed = 0;
    MorphSeekException::ThrowUnlessOk(write(nullptr, 0, &needed), ITK_LOCATION);
    std::string written(needed, '\0');
    MorphSeekException::ThrowUnlessOk(write(&written[0], needed, nullptr), ITK_LOCATION);
    written.pop_back(); // the NUL
    return written;
  };
  m_Metrics = text(
    [=](char * dst, size_t capacity, size_t * needed) { return ms_result_metrics(result, dst, capacity, needed); });
  ms_verdict verdict = {};
  verdict.size = sizeof verdict;
  MorphSeekException::ThrowUnlessOk(ms_result_verdict(result, &verdict), ITK_LOCATION);
  m_Verdict = verdict.grade == MS_GOOD     ? "good"
              : verdict.grade == MS_CHECK  ? "check"
              : verdict.grade == MS_FAILED ? "failed"
                                           : "";
  for (size_t i = 0; i < verdict.reason_count; ++i)
  {
    m_VerdictReasons.push_back(text([=](char * dst, size_t capacity, size_t * needed) {
      return ms_result_reason(result, i, dst, capacity, needed);
    }));
  }
  m_EstimatedError = verdict.error_mm;
  m_FoldingPercentage = verdict.njd_percent;

  this->AllocateOutputs();
  DisplacementFieldType * output = this->GetOutput();
  const size_t            n = 3 * output->GetBufferedRegion().GetNumberOfPixels();
  ComponentType *         components = output->GetBufferPointer()->GetDataPointer();
  if constexpr (std::is_same<ComponentType, float>::value)
  {
    MorphSeekException::ThrowUnlessOk(ms_result_field_mm(result, components, n), ITK_LOCATION);
  }
  else
  {
    std::vector<float> field(n);
    MorphSeekException::ThrowUnlessOk(ms_result_field_mm(result, field.data(), n), ITK_LOCATION);
    std::copy(field.begin(), field.end(), components);
  }

  if (m_Uncertainty == "on")
  {
    auto image = FloatImageType::New();
    image->CopyInformation(output);
    image->SetRegions(output->GetBufferedRegion());
    image->Allocate();
    MorphSeekException::ThrowUnlessOk(ms_result_uncertainty(result, image->GetBufferPointer(), n / 3), ITK_LOCATION);
    m_UncertaintyImage = image;
  }

  auto field = TransformType::DisplacementFieldType::New();
  field->CopyInformation(output);
  const auto region = output->GetBufferedRegion(); // copies and files of a transform know no index but 0
  field->SetOrigin(output->template TransformIndexToPhysicalPoint<double>(region.GetIndex()));
  field->SetRegions(region.GetSize());
  field->SetPixelContainer(output->GetPixelContainer()); // the next run gets another one
  auto transform = TransformType::New();
  transform->SetDisplacementField(field);
  this->GetTransformOutput()->Set(transform);
}

template <typename TFixedImage, typename TMovingImage, typename TDisplacementField>
void
MorphSeekRegistrationFilter<TFixedImage, TMovingImage, TDisplacementField>::PrintSelf(std::ostream & os,
                                                                                      Indent         indent) const
{
  Superclass::PrintSelf(os, indent);
#define MORPHSEEK_PRINT(Name, member, Type) os << indent << #Name ": " << m_##Name << '\n';
  MORPHSEEK_OPTIONS(MORPHSEEK_PRINT)
#undef MORPHSEEK_PRINT
  os << indent << "RuntimeLibrary: " << m_RuntimeLibrary << '\n';
  os << indent << "ModelDirectory: " << m_ModelDirectory << '\n';
  os << indent << "Channels: " << m_Channels.size() << '\n';
  os << indent << "Doubts:";
  for (const std::string & sentence : m_Doubts)
  {
    os << " [" << sentence << ']';
  }
  os << '\n';
  os << indent << "FoldingPercentage: " << m_FoldingPercentage << '\n';
  os << indent << "Verdict: " << m_Verdict << '\n';
  os << indent << "VerdictReasons:";
  for (const std::string & reason : m_VerdictReasons)
  {
    os << " [" << reason << ']';
  }
  os << '\n';
  os << indent << "EstimatedError: " << m_EstimatedError << '\n';
  os << indent << "Metrics: " << m_Metrics << '\n';
  itkPrintSelfObjectMacro(UncertaintyImage);
}
} // namespace itk

#endif
