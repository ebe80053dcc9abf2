// The test driver: itkMorphSeekTest NAME runs one test, without a name all of them. It succeeds if no expectation fails.
#include "byC.h"
#include "itkCastImageFilter.h"
#include "itkCenteredEuler3DTransform.h"
#include "itkCommand.h"
#include "itkCompositeTransform.h"
#include "itkImageRegionConstIterator.h"
#include "itkImageRegionIterator.h"
#include "itkImageFileReader.h"
#include "itkImageRegionIteratorWithIndex.h"
#include "itkMetaDataObject.h"
#include "itkMorphSeekNiftiDoubts.h"
#include "itkMorphSeekRegistrationFilter.h"
#include "itkMorphSeekWarpFilter.h"
#include "itkNiftiImageIO.h"
#include "itkResampleImageFilter.h"
#include "itkStreamingImageFilter.h"
#include "itkTranslationTransform.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <clocale>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <locale>
#include <map>
#include <random>
#include <sstream>
#include <thread>
#include <vector>

namespace
{
int failures = 0;

#define EXPECT(condition)                                                       \
  do                                                                            \
  {                                                                             \
    if (!(condition))                                                           \
    {                                                                           \
      std::cerr << __FILE__ << ':' << __LINE__ << ": not so: " #condition "\n"; \
      ++failures;                                                               \
    }                                                                           \
  } while (0)

using FloatImage = itk::Image<float, 3>;

itk::Vector<double, 3>
Mm(double x, double y, double z)
{
  const double components[3] = { x, y, z };
  return itk::Vector<double, 3>(components);
}

// An image's grid: oblique if turned is not 0 (radians about z, then x).
struct Grid
{
  itk::Size<3>           size{ { 28, 26, 24 } };
  itk::Vector<double, 3> spacing{ Mm(1.5, 1.5, 1.5) };
  double                 turn{ 0 };
  itk::Index<3>          start{ { 0, 0, 0 } };
};

// Two blobs about the LPS origin, displaced by shift mm along x, on a grid that is centred there.
template <typename TImage = FloatImage>
typename TImage::Pointer
Phantom(double shift, const Grid & grid = {})
{
  auto euler = itk::CenteredEuler3DTransform<double>::New();
  euler->SetRotation(0.7 * grid.turn, 0, grid.turn);
  auto image = TImage::New();
  image->SetRegions(typename TImage::RegionType(grid.start, grid.size));
  image->SetSpacing(grid.spacing);
  image->SetDirection(euler->GetMatrix());
  itk::ContinuousIndex<double, 3> centre;
  for (unsigned int axis = 0; axis < 3; ++axis)
  {
    centre[axis] = grid.start[axis] + 0.5 * (grid.size[axis] - 1.0);
  }
  itk::Point<double, 3> offset;
  image->TransformContinuousIndexToPhysicalPoint(centre, offset);
  image->SetOrigin(image->GetOrigin() - offset.GetVectorFromOrigin());
  image->Allocate();
  for (itk::ImageRegionIteratorWithIndex<TImage> it(image, image->GetBufferedRegion()); !it.IsAtEnd(); ++it)
  {
    itk::Point<double, 3> p;
    image->TransformIndexToPhysicalPoint(it.GetIndex(), p);
    const double x = p[0] - shift, y = p[1], z = p[2];
    const double body = std::exp(-(x * x / 60 + y * y / 40 + z * z / 90));
    const double spot = std::exp(-((x - 4) * (x - 4) + (y + 3) * (y + 3) + (z - 2) * (z - 2)) / 8);
    it.Set(static_cast<typename TImage::PixelType>(100 * body + 60 * spot));
  }
  return image;
}

// A filter for the phantoms, which need no network.
template <typename TFixed = FloatImage,
          typename TMoving = TFixed,
          typename TField = itk::Image<itk::Vector<float, 3>, 3>>
typename itk::MorphSeekRegistrationFilter<TFixed, TMoving, TField>::Pointer
Filter(const TFixed * fixed, const TMoving * moving)
{
  auto filter = itk::MorphSeekRegistrationFilter<TFixed, TMoving, TField>::New();
  filter->SetFixedImage(fixed);
  filter->SetMovingImage(moving);
  filter->SetModel("none");
  filter->SetInitial("rigid");
  filter->SetSearch("off");
  filter->SetRefine(5);
  return filter;
}

template <typename TField>
double
MaxDifference(const TField * a, const TField * b)
{
  double                                most = 0;
  itk::ImageRegionConstIterator<TField> other(b, b->GetBufferedRegion());
  for (itk::ImageRegionConstIterator<TField> it(a, a->GetBufferedRegion()); !it.IsAtEnd(); ++it, ++other)
  {
    most = std::max<double>(most, (it.Get() - other.Get()).GetNorm());
  }
  return most;
}

template <typename TImage>
FloatImage::Pointer
AsFloat(const TImage * image)
{
  auto cast = itk::CastImageFilter<TImage, FloatImage>::New();
  cast->SetInput(image);
  cast->Update();
  return cast->GetOutput();
}

// The options of Filter(), for the C interface.
ms_options
Options()
{
  ms_options options;
  ThrowUnlessOk(ms_options_init(&options, sizeof options));
  options.model = "none";
  options.initial = "rigid";
  options.search = "off";
  options.refine = 5;
  options.threads = 2;
  return options;
}

// Expects the filter's field to be that of the C interface to 1e-4 voxel.
template <typename TFilter>
void
ExpectField(TFilter * filter, const std::vector<float> & byC)
{
  const auto * ours = filter->GetOutput()->GetBufferPointer()->GetDataPointer();
  const auto   spacing = filter->GetOutput()->GetSpacing();
  const double voxel = std::min({ spacing[0], spacing[1], spacing[2] });
  EXPECT(byC.size() == 3 * filter->GetOutput()->GetBufferedRegion().GetNumberOfPixels());
  double most = 0;
  for (size_t i = 0; i < byC.size(); ++i)
  {
    most = std::max(most, std::abs(byC[i] - static_cast<double>(ours[i])) / voxel);
  }
  std::cout << "largest difference to the C interface: " << most << " voxel\n";
  EXPECT(most < 1e-4);
}

// A filter that resamples an image by a transform onto the grid of another.
template <typename TImage, typename TOutput = TImage>
typename itk::MorphSeekWarpFilter<TImage, TOutput>::Pointer
Warp(const TImage * image, const itk::Transform<float, 3, 3> * transform, const itk::ImageBase<3> * grid)
{
  auto warp = itk::MorphSeekWarpFilter<TImage, TOutput>::New();
  warp->SetInput(image);
  warp->SetTransform(transform);
  warp->SetReferenceImage(grid);
  return warp;
}

// Expects two ways to warp by the filter's transform to give the C interface's warped image: ITK's resampling with the same background,
// and MorphSeekWarpFilter.
void
ExpectWarped(const itk::MorphSeekRegistrationFilter<FloatImage> * filter,
             const FloatImage *                                   moving,
             const std::vector<float> &                           byC)
{
  auto resample = itk::ResampleImageFilter<FloatImage, FloatImage, double, float>::New();
  resample->SetInput(moving);
  resample->SetTransform(filter->GetTransform());
  resample->SetReferenceImage(filter->GetFixedImage());
  resample->UseReferenceImageOn();
  resample->SetDefaultPixelValue(*std::min_element(
    moving->GetBufferPointer(), moving->GetBufferPointer() + moving->GetBufferedRegion().GetNumberOfPixels()));
  resample->Update();
  auto warp = Warp<FloatImage>(moving, filter->GetTransform(), filter->GetOutput());
  warp->Update();
  double toItk = 0, toOurs = 0;
  for (size_t i = 0; i < byC.size(); ++i)
  {
    toItk = std::max<double>(toItk, std::abs(byC[i] - resample->GetOutput()->GetBufferPointer()[i]));
    toOurs = std::max<double>(toOurs, std::abs(byC[i] - warp->GetOutput()->GetBufferPointer()[i]));
  }
  std::cout << "largest difference of the warped images: " << toItk << ", " << toOurs << " of 160\n";
  EXPECT(toItk < 0.01 && toOurs < 0.01);
  EXPECT(warp->GetFoldingPercentage() == filter->GetFoldingPercentage());
}

// Expects the blob's centre to move in the right direction and unit, to half a voxel. Five iterations of the engine come no nearer; that
// the field is the engine's to 1e-4 voxel is checked by ExpectField.
template <typename TFilter>
void
ExpectShift(const TFilter * filter, double shift)
{
  const double                                    tolerance = 0.75;
  typename TFilter::TransformType::InputPointType centre(0.0);
  const auto                                      mapped = filter->GetTransform()->TransformPoint(centre);
  std::cout << "centre -> " << mapped << ", wanted x = " << shift << '\n';
  EXPECT(std::abs(mapped[0] - shift) < tolerance && std::abs(mapped[1]) < tolerance && std::abs(mapped[2]) < tolerance);
}

// Thrown runs a function and returns the message of the exception of a type that it throws; empty without one.
template <typename TException, typename TWork>
std::string
Thrown(const TWork & work)
{
  try
  {
    work();
  }
  catch (const TException & error)
  {
    return error.what();
  }
  return "";
}

// The status code that an update ends with.
template <typename TFilter>
ms_status
CodeOf(TFilter * filter)
{
  try
  {
    filter->Update();
  }
  catch (const itk::MorphSeekException & error)
  {
    std::cout << error.GetDescription() << '\n';
    EXPECT(std::string(error.GetDescription()).size() > 20);
    return error.GetCode();
  }
  return MS_OK;
}

// Channels drive the registration and appear in the metrics. After ClearChannels() the field is that of the images alone.
void
TestChannels()
{
  const auto fixed = Phantom(0), moving = Phantom(3);
  auto       labels = [](const FloatImage * image) {
    auto duplicate = AsFloat(image);
    for (itk::ImageRegionIterator<FloatImage> it(duplicate, duplicate->GetBufferedRegion()); !it.IsAtEnd(); ++it)
    {
      it.Set(it.Get() > 80 ? 1.0f : 0.0f);
    }
    return duplicate;
  };
  auto       plain = Filter(fixed.GetPointer(), moving.GetPointer());
  auto       filter = Filter(fixed.GetPointer(), moving.GetPointer());
  const auto here = labels(fixed.GetPointer()), there = labels(moving.GetPointer());
  filter->AddChannel(fixed, moving, 0.5);
  filter->AddLabelChannel(here, there);
  EXPECT(filter->GetNumberOfChannels() == 2);
  filter->Update();
  EXPECT(filter->GetMetrics().find("\"name\":\"channel 2\",\"weight\":0.5,\"similarity\":\"ncc\"") !=
         std::string::npos);
  EXPECT(filter->GetMetrics().find("\"name\":\"channel 3\",\"weight\":1,\"similarity\":\"labels\"") !=
         std::string::npos);
  plain->Update();
  filter->ClearChannels();
  filter->Update();
  EXPECT(filter->GetNumberOfChannels() == 0 && MaxDifference(filter->GetOutput(), plain->GetOutput()) == 0);

  auto wrong = Filter(fixed.GetPointer(), moving.GetPointer());
  wrong->AddLabelChannel(fixed, moving); // images of intensities, not labels
  EXPECT(CodeOf(wrong.GetPointer()) == MS_ERR_INVALID_ARGUMENT);
  EXPECT(!Thrown<itk::ExceptionObject>([&] { wrong->AddChannel(nullptr, moving); }).empty());
}

void
TestDefaults()
{
  auto       filter = itk::MorphSeekRegistrationFilter<FloatImage>::New();
  ms_options defaults;
  EXPECT(ms_options_init(&defaults, sizeof defaults) == MS_OK);
  EXPECT(filter->GetPreset() == defaults.preset && filter->GetModel() == defaults.model &&
         filter->GetInitial() == defaults.initial);
  EXPECT(filter->GetSmoothness() == defaults.smoothness);
  EXPECT(filter->GetSteps() == defaults.steps && filter->GetTau() == defaults.tau &&
         filter->GetRefine() == defaults.refine);
  std::ostringstream text;
  filter->SetSeed(4711);
  filter->Print(text);
  for (const char * name : { "Preset: ",
                             "Model: ",
                             "Initial: ",
                             "Search: ",
                             "Steps: ",
                             "Trajectories: ",
                             "Tau: ",
                             "Refine: ",
                             "Similarity: ",
                             "Device: ",
                             "Seed: 4711",
                             "Cache: ",
                             "Smoothness: auto",
                             "RuntimeLibrary: ",
                             "ModelDirectory: ",
                             "FoldingPercentage: ",
                             "Verdict: ",
                             "VerdictReasons:",
                             "EstimatedError: ",
                             "Doubts:",
                             "Metrics: " })
  {
    EXPECT(text.str().find(name) != std::string::npos);
  }
}

// A registration's verdict is that of its metrics: one for a body that moved, another for noise on noise.
void
TestVerdict()
{
  const auto fixed = Phantom(0), moving = Phantom(3);
  auto       filter = Filter(fixed.GetPointer(), moving.GetPointer());
  EXPECT(filter->GetVerdict().empty() && filter->GetVerdictReasons().empty() && filter->GetEstimatedError() == 0);
  filter->Update();
  const auto quoted = [&] { return "\"verdict\":{\"grade\":\"" + filter->GetVerdict() + '"'; };
  EXPECT(!filter->GetVerdict().empty() && filter->GetMetrics().find(quoted()) != std::string::npos);
  const std::string key = "\"error_mm\":";
  const size_t      at = filter->GetMetrics().find(key);
  EXPECT(at != std::string::npos && filter->GetEstimatedError() > 0 &&
         filter->GetEstimatedError() == std::strtod(filter->GetMetrics().c_str() + at + key.size(), nullptr));
  EXPECT((filter->GetVerdict() == "good") == filter->GetVerdictReasons().empty());

  unsigned int state = 1;
  for (const auto & image : { fixed, moving })
  {
    for (itk::ImageRegionIteratorWithIndex<FloatImage> it(image, image->GetBufferedRegion()); !it.IsAtEnd(); ++it)
    {
      state = 1664525 * state + 1013904223;
      it.Set(static_cast<float>(state >> 8));
    }
    image->Modified();
  }
  filter->Update();
  EXPECT(filter->GetVerdict() == "check" || filter->GetVerdict() == "failed");
  EXPECT(!filter->GetVerdictReasons().empty() && filter->GetMetrics().find(quoted()) != std::string::npos);
  std::ostringstream text;
  filter->Print(text);
  EXPECT(text.str().find("Verdict: " + filter->GetVerdict()) != std::string::npos &&
         text.str().find(filter->GetVerdictReasons().front()) != std::string::npos);
}

// A program may set a locale with a decimal comma, as Qt does. The numbers of the metrics stay the same.
void
TestLocale()
{
#ifdef __linux__
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("morphseek-" + std::to_string(std::random_device{}()));
  fs::create_directory(folder);
  const std::string make = "localedef -i de_DE -f UTF-8 " + (folder / "de_DE.UTF-8").string() + " 2>/dev/null";
  const int         made = std::system(make.c_str());
  setenv("LOCPATH", folder.c_str(), 1);
  const auto fixed = Phantom(0), moving = Phantom(3);
  auto       filter = Filter(fixed.GetPointer(), moving.GetPointer());
  filter->Update();
  const double error = filter->GetEstimatedError();
  EXPECT(error > 0 && error != std::floor(error));
  if (std::setlocale(LC_ALL, "de_DE.UTF-8") != nullptr)
  {
    EXPECT(std::strtod("0.5", nullptr) == 0);
    filter->Modified();
    filter->Update();
    EXPECT(filter->GetEstimatedError() == error);
    std::setlocale(LC_ALL, "C");
  }
  else
  {
    std::cout << "SKIPPED: localedef makes no locale with a decimal comma (status " << made << ")\n";
  }
  unsetenv("LOCPATH");
  fs::remove_all(folder);
#endif
}

// On every pair of grids the field and the warped image are the C interface's, and the transform shares the field's buffer.
void
TestGrids()
{
  struct Case
  {
    const char * name;
    Grid         fixed, moving;
  };
  const Case cases[] = {
    { "the same", {}, {} },
    { "oblique", { { { 28, 26, 24 } }, Mm(1.5, 1.5, 1.5), 0.3 }, { { { 26, 28, 30 } }, Mm(1.4, 1.6, 1.3), -0.2 } },
    { "anisotropic", { { { 40, 40, 10 } }, Mm(1., 1., 4.), 0 }, { { { 26, 24, 22 } }, Mm(1.6, 1.6, 1.8), 0 } },
    { "fixed smaller than moving",
      { { { 22, 20, 24 } }, Mm(1.5, 1.5, 1.5), 0 },
      { { { 44, 42, 40 } }, Mm(1.5, 1.5, 1.5), 0 } }, // the body just fits
    { "index not from 0",
      { { { 28, 26, 24 } }, Mm(1.5, 1.5, 1.5), 0.3, { { 5, -7, 11 } } },
      { { { 28, 26, 24 } }, Mm(1.5, 1.5, 1.5), 0, { { -3, 2, 1 } } } },
  };
  for (const Case & c : cases)
  {
    std::cout << c.name << ": ";
    const auto fixed = Phantom(0, c.fixed), moving = Phantom(3, c.moving);
    auto       filter = Filter(fixed.GetPointer(), moving.GetPointer());
    filter->Update();
    ExpectShift(filter.GetPointer(), 3);
    const FloatImage::RegionType & region = fixed->GetLargestPossibleRegion();
    EXPECT(filter->GetOutput()->GetLargestPossibleRegion() == region &&
           filter->GetOutput()->GetBufferedRegion() == region);
    EXPECT(filter->GetOutput()->GetOrigin() == fixed->GetOrigin() &&
           filter->GetOutput()->GetSpacing() == fixed->GetSpacing() &&
           filter->GetOutput()->GetDirection() == fixed->GetDirection());
    EXPECT(filter->GetOutput()->GetBufferPointer() ==
           filter->GetTransform()->GetDisplacementField()->GetBufferPointer());
    const auto                 copy = filter->GetTransform()->Clone(); // by its parameters, as a file holds them
    const itk::Point<float, 3> point(3.F);
    EXPECT(copy->TransformPoint(point) == filter->GetTransform()->TransformPoint(point));
    EXPECT(filter->GetMetrics().find("\"similarity_after\"") != std::string::npos);
    EXPECT(filter->GetMetrics().find("\"threads\":2,") != std::string::npos); // ITK's, set in main
    EXPECT(filter->GetFoldingPercentage() == 0);

    const ByC byC = RegisterByC(fixed, moving, Options(), true);
    ExpectField(filter.GetPointer(), byC.field);
    ExpectWarped(filter, moving, byC.warped);
  }
}

void
TestPixelTypes()
{
  using DoubleField = itk::Image<itk::Vector<double, 3>, 3>;
  using Short = itk::Image<short, 3>;
  using UChar = itk::Image<unsigned char, 3>;
  using Double = itk::Image<double, 3>;
  const auto asShort = Phantom<Short>(0);
  const auto asUChar = Phantom<UChar>(3);
  auto       ofShort = Filter(asShort.GetPointer(), asUChar.GetPointer());
  ofShort->Update();
  ExpectShift(ofShort.GetPointer(), 3);
  ExpectField(ofShort.GetPointer(),
              RegisterByC(AsFloat(asShort.GetPointer()), AsFloat(asUChar.GetPointer()), Options()).field);
  // Whole numbers are rounded, as in Python, and not cut off, as by ITK.
  auto shift = itk::TranslationTransform<float, 3>::New();
  shift->Translate(itk::Vector<float, 3>(0.6F));
  auto rounded = Warp<UChar>(asUChar, shift, asShort);
  auto exact = Warp<UChar, FloatImage>(asUChar, shift, asShort);
  rounded->Update();
  exact->Update();
  itk::ImageRegionConstIterator<FloatImage> other(exact->GetOutput(), exact->GetOutput()->GetBufferedRegion());
  float                                     most = 0;
  for (itk::ImageRegionConstIterator<UChar> it(rounded->GetOutput(), rounded->GetOutput()->GetBufferedRegion());
       !it.IsAtEnd(); ++it, ++other)
  {
    most = std::max(most, std::abs(it.Get() - other.Get()));
  }
  EXPECT(most > 0.4F && most < 0.501F);
  const auto fixed = Phantom<Double>(0), moving = Phantom<Double>(3);
  auto       ofDouble = Filter<Double, Double, DoubleField>(fixed, moving);
  ofDouble->Update();
  ExpectField(ofDouble.GetPointer(),
              RegisterByC(AsFloat(fixed.GetPointer()), AsFloat(moving.GetPointer()), Options()).field);
}

void
TestMasks()
{
  using Mask = itk::Image<unsigned char, 3>;
  // The body moves by 3 mm; a box beside it does not. The masks leave the box out.
  auto       fixed = Phantom(0), moving = Phantom(3);
  const auto fixedMask = Phantom<Mask>(0), movingMask = Phantom<Mask>(3);
  for (const auto & image : { fixed, moving })
  {
    const FloatImage::RegionType box({ { 10, 21, 2 } }, { { 8, 4, 20 } });
    for (itk::ImageRegionIteratorWithIndex<FloatImage> it(image, box); !it.IsAtEnd(); ++it)
    {
      it.Set(150);
      fixedMask->SetPixel(it.GetIndex(), 0);
      movingMask->SetPixel(it.GetIndex(), 0);
    }
  }
  auto filter = Filter(fixed.GetPointer(), moving.GetPointer());
  filter->SetFixedMask(fixedMask);
  filter->SetMovingMask(movingMask);
  EXPECT(CodeOf(filter.GetPointer()) == MS_OK);
  const auto fixedAsFloat = AsFloat(fixedMask.GetPointer()), movingAsFloat = AsFloat(movingMask.GetPointer());
  const auto masked = RegisterByC(fixed, moving, Options(), false, fixedAsFloat, movingAsFloat).field;
  ExpectField(filter.GetPointer(), masked);
  EXPECT(masked != RegisterByC(fixed, moving, Options(), false, fixedAsFloat, nullptr).field);
  EXPECT(masked != RegisterByC(fixed, moving, Options(), false, nullptr, movingAsFloat).field);

  const auto empty = Phantom<Mask>(0), other = Phantom<Mask>(0, { { { 9, 9, 9 } } });
  empty->FillBuffer(0);
  filter->SetFixedMask(empty);
  EXPECT(CodeOf(filter.GetPointer()) == MS_ERR_EMPTY_MASK);
  filter->SetFixedMask(nullptr);
  filter->SetMovingMask(other);
  EXPECT(CodeOf(filter.GetPointer()) == MS_ERR_GRID_MISMATCH);
}

// A displacement field with a shift and a small wave: a transform that is not linear.
itk::DisplacementFieldTransform<double, 3>::Pointer
BentShift(double shift)
{
  using Transform = itk::DisplacementFieldTransform<double, 3>;
  auto grid = Phantom(0, { { { 60, 60, 60 } }, Mm(1.5, 1.5, 1.5) });
  auto field = Transform::DisplacementFieldType::New();
  field->CopyInformation(grid);
  field->SetRegions(grid->GetBufferedRegion());
  field->Allocate();
  for (itk::ImageRegionIteratorWithIndex<Transform::DisplacementFieldType> it(field, field->GetBufferedRegion());
       !it.IsAtEnd(); ++it)
  {
    it.Set(Mm(shift + 0.3 * std::sin(0.2 * it.GetIndex()[1]), 0.0, 0.0));
  }
  auto transform = Transform::New();
  transform->SetDisplacementField(field);
  return transform;
}

void
TestInitialTransform()
{
  auto fixed = Phantom(0), moving = Phantom(20, { { { 56, 26, 24 } } });
  auto filter = Filter(fixed.GetPointer(), moving.GetPointer());
  filter->SetInitial("none");

  const double matrix[12] = { 1, 0, 0, 20, 0, 1, 0, 0, 0, 0, 1, 0 };
  ms_options   options = Options();
  options.initial = "none";
  const auto byC = RegisterByC(fixed, moving, options, false, nullptr, nullptr, matrix).field;
  auto       translation = itk::TranslationTransform<double, 3>::New();
  translation->Translate(Mm(20., 0., 0.));
  filter->SetInitialTransform(translation);
  EXPECT(filter->GetInitialTransform() == translation);
  filter->Update();
  ExpectShift(filter.GetPointer(), 20);
  ExpectField(filter.GetPointer(), byC);

  auto single = itk::TranslationTransform<float, 3>::New();
  single->Translate(itk::Vector<float, 3>(Mm(20., 0., 0.)));
  filter->SetInitialTransform(single);
  filter->Update();
  ExpectField(filter.GetPointer(), byC);

  // Not linear, in two precisions; the second transform is the output of another registration.
  const itk::DisplacementFieldTransform<float, 3>::ConstPointer first = filter->GetTransform();
  const auto                                                    kept = first->GetDisplacementField();
  filter->SetInitialTransform(BentShift(19.5));
  filter->Update();
  ExpectShift(filter.GetPointer(), 20);
  EXPECT(filter->GetTransform() != first && first->GetDisplacementField() == kept); // the first run's is unchanged
  EXPECT(kept->GetBufferPointer() != filter->GetOutput()->GetBufferPointer());
  filter->SetInitialTransform(first);
  filter->Update();
  ExpectShift(filter.GetPointer(), 20);

  // Without refinement, a composite with a displacement field is itself the result, and the metrics describe the whole of it.
  auto bent = itk::CompositeTransform<double, 3>::New();
  bent->AddTransform(translation);
  bent->AddTransform(BentShift(0.5)); // acts first
  filter->SetInitialTransform(bent);
  filter->SetRefine(0);
  filter->Update();
  using FieldType = itk::Image<itk::Vector<float, 3>, 3>;
  for (itk::ImageRegionConstIteratorWithIndex<FieldType> it(filter->GetOutput(),
                                                            filter->GetOutput()->GetBufferedRegion());
       !it.IsAtEnd(); ++it)
  {
    const auto point = filter->GetOutput()->TransformIndexToPhysicalPoint<double>(it.GetIndex());
    const auto asked = bent->TransformPoint(point) - point;
    for (unsigned int axis = 0; axis < 3; ++axis)
    {
      EXPECT(std::abs(it.Get()[axis] - asked[axis]) < 1e-3);
    }
  }
  EXPECT(filter->GetMetrics().find("\"start\":\"deformation\"") != std::string::npos);
  filter->SetRefine(5);

  auto far = itk::TranslationTransform<double, 3>::New();
  far->Translate(Mm(5000., 0., 0.));
  filter->SetInitialTransform(far);
  EXPECT(CodeOf(filter.GetPointer()) == MS_ERR_NO_OVERLAP);
  filter->SetInitialTransform(nullptr);
  EXPECT(filter->GetInitialTransform() == nullptr);
}

// With all stages switched off, the landmarks alone decide what moves.
void
TestLandmarks()
{
  auto fixed = Phantom(0), moving = Phantom(0);
  auto filter = Filter(fixed.GetPointer(), moving.GetPointer());
  filter->SetInitial("none");
  filter->SetRefine(0);
  using FilterType = std::decay<decltype(*filter)>::type;
  const auto                         region = fixed->GetBufferedRegion();
  FilterType::LandmarkPointContainer here, there;
  for (int corner = 0; corner < 8; ++corner)
  {
    auto index = region.GetIndex();
    for (unsigned int axis = 0; axis < 3; ++axis)
    {
      index[axis] += static_cast<itk::IndexValueType>(region.GetSize(axis) * ((corner >> axis & 1) != 0 ? 2 : 1) / 3);
    }
    const auto point = fixed->TransformIndexToPhysicalPoint<double>(index);
    here.push_back(point);
    there.push_back(point + Mm(0., 3., 0.));
  }
  filter->SetFixedLandmarks(here);
  EXPECT(CodeOf(filter.GetPointer()) == MS_ERR_INVALID_ARGUMENT); // without moving ones
  filter->SetMovingLandmarks(there);
  EXPECT(CodeOf(filter.GetPointer()) == MS_ERR_INVALID_ARGUMENT); // without their error
  filter->SetLandmarkError(0.2);
  filter->Update();
  const auto moved = filter->GetTransform()->TransformPoint(here[0]) - here[0];
  EXPECT(std::abs(moved[1] - 3) < 0.2 && std::abs(moved[0]) < 0.1);
  EXPECT(filter->GetMetrics().find("\"landmark_fit\":{\"count\":8") != std::string::npos);
  filter->SetFixedLandmarks({});
  filter->SetMovingLandmarks({});
  filter->Update();
  EXPECT(filter->GetTransform()->TransformPoint(here[0]).EuclideanDistanceTo(here[0]) < 1e-6);
}

// The moving image holds only the left half, without the middle of the body. No tissue may move towards the missing half, even when the
// initial transform is a displacement field.
void
TestInitialTransformOfPart()
{
  auto fixed = Phantom(0), part = FloatImage::New();
  auto region = fixed->GetLargestPossibleRegion();
  region.SetSize(0, 13);
  part->CopyInformation(fixed);
  part->SetRegions(region);
  part->Allocate();
  for (itk::ImageRegionIteratorWithIndex<FloatImage> it(part, region); !it.IsAtEnd(); ++it)
  {
    it.Set(fixed->GetPixel(it.GetIndex()));
  }
  auto filter = Filter(fixed.GetPointer(), part.GetPointer());
  filter->SetInitial("none");
  filter->SetRefine(20);
  filter->SetInitialTransform(BentShift(0));
  filter->Update();
  double sum = 0;
  region.SetIndex(1, 6); // the body
  region.SetSize(1, 14);
  region.SetIndex(2, 6);
  region.SetSize(2, 12);
  for (itk::ImageRegionConstIterator<itk::Image<itk::Vector<float, 3>, 3>> it(filter->GetOutput(), region);
       !it.IsAtEnd(); ++it)
  {
    sum += it.Get().GetNorm();
  }
  const double mean = sum / region.GetNumberOfPixels();
  std::cout << "where both are, points move by " << mean << " mm on average\n";
  EXPECT(mean < 0.5);
}

struct Stop : itk::Command
{
  using Pointer = itk::SmartPointer<Stop>;
  itkSimpleNewMacro(Stop);
  bool throws{ false };
  int  calls{ 0 };
  void
  Execute(itk::Object * caller, const itk::EventObject &) override
  {
    auto * filter = static_cast<itk::ProcessObject *>(caller);
    ++calls;
    if (filter->GetProgress() > 0.1f)
    {
      if (throws)
      {
        throw std::runtime_error("an observer's own");
      }
      filter->AbortGenerateDataOn();
    }
  }
  void
  Execute(const itk::Object *, const itk::EventObject &) override
  {}
};

// A wave along the first index axis, on an oblique, left-handed, anisotropic grid, of slices or of one. It is known in which voxels it
// folds.
void
ExpectFolding(itk::SizeValueType slices)
{
  using Field = itk::Image<itk::Vector<float, 3>, 3>;
  auto                      like = Phantom(0, { { { 40, 6, slices } }, Mm(1.5, 1., 3.), 0.4, { { 3, -2, 0 } } });
  FloatImage::DirectionType direction = like->GetDirection();
  for (unsigned int row = 0; row < 3; ++row)
  {
    direction[row][2] *= -1;
  }
  auto field = Field::New();
  field->CopyInformation(like);
  field->SetDirection(direction);
  field->SetRegions(like->GetBufferedRegion());
  field->Allocate();
  const auto wave = [](long i) { return 2.5 * std::sin(0.5 * i); }; // voxels
  size_t     folded = 0;
  for (itk::ImageRegionIteratorWithIndex<Field> it(field, field->GetBufferedRegion()); !it.IsAtEnd(); ++it)
  {
    const long i = it.GetIndex()[0], before = std::max(i - 1, 3L), after = std::min(i + 1, 42L);
    folded += 1 + (wave(after) - wave(before)) / (after - before) < 0;
    for (unsigned int row = 0; row < 3; ++row)
    {
      it.Value()[row] = static_cast<float>(wave(i) * 1.5 * direction[row][0]);
    }
  }
  const double wanted = 100.0 * folded / field->GetBufferedRegion().GetNumberOfPixels();
  std::cout << "folding: " << itk::MorphSeekFoldingPercentage(field.GetPointer()) << " %, wanted " << wanted << " %\n";
  EXPECT(wanted > 10 && wanted < 60);
  EXPECT(std::abs(itk::MorphSeekFoldingPercentage(field.GetPointer()) - wanted) < 1e-9);

  auto transform = itk::DisplacementFieldTransform<float, 3>::New();
  transform->SetDisplacementField(field);
  auto warp = Warp<FloatImage>(like, transform, field);
  warp->Update();
  EXPECT(std::abs(warp->GetFoldingPercentage() - wanted) < 1e-9);
}

void
TestFolding()
{
  ExpectFolding(5);
  ExpectFolding(1);
}

// Filters that are connected before the first run give the right image after each Update() of the last one, also after a run that was
// stopped.
void
TestPipeline()
{
  auto fixed = Phantom(0);
  auto registration = Filter(fixed.GetPointer(), Phantom(3).GetPointer());
  auto warp = itk::MorphSeekWarpFilter<FloatImage>::New();
  warp->SetTransformInput(registration->GetTransformOutput());
  warp->SetReferenceImage(registration->GetOutput());
  for (const double shift : { 3., -4. })
  {
    auto moving = Phantom(shift);
    registration->SetMovingImage(moving);
    warp->SetInput(moving);
    const auto tag = registration->AddObserver(itk::ProgressEvent(), Stop::New());
    EXPECT(!Thrown<itk::ProcessAborted>([&] { warp->Update(); }).empty());
    EXPECT(registration->GetVerdict().empty() && registration->GetMetrics().empty());
    registration->RemoveObserver(tag);
    warp->ResetPipeline(); // as ITK wants it after an exception
    warp->Update();
    EXPECT(!registration->GetVerdict().empty());
    const auto byC = RegisterByC(fixed, moving, Options(), true).warped;
    EXPECT(std::equal(byC.begin(), byC.end(), warp->GetOutput()->GetBufferPointer(),
                      [](float a, float b) { return std::abs(a - b) < 0.01; }));
  }

  auto nowhere = itk::MorphSeekWarpFilter<FloatImage>::New();
  nowhere->SetInput(fixed);
  const auto refused = Thrown<itk::ExceptionObject>([&] { nowhere->Update(); });
  EXPECT(refused.find("no grid for the output") != std::string::npos);
}

// Outside the moving image the background is its minimum, also when the output is streamed or its type cannot hold the minimum.
void
TestBackground()
{
  using Bytes = itk::Image<unsigned char, 3>;
  auto moving = Phantom(0);
  moving->GetBufferPointer()[0] = -1000;
  auto                  transform = itk::TranslationTransform<float, 3>::New();
  itk::Vector<float, 3> shift(0.0f);
  shift[2] = 0.6f * moving->GetSpacing()[2] * moving->GetLargestPossibleRegion().GetSize(2);
  transform->SetOffset(shift);
  auto warp = Warp<FloatImage>(moving, transform, moving);
  auto streamed = itk::StreamingImageFilter<FloatImage, FloatImage>::New();
  streamed->SetInput(warp->GetOutput());
  streamed->SetNumberOfStreamDivisions(4);
  streamed->Update();
  auto bytes = Warp<FloatImage, Bytes>(moving, transform, moving);
  bytes->Update();
  const auto size = moving->GetLargestPossibleRegion().GetSize();
  for (itk::IndexValueType z = size[2] - 3; z < static_cast<itk::IndexValueType>(size[2]); ++z)
  {
    EXPECT((streamed->GetOutput()->GetPixel({ { 5, 5, z } }) == -1000));
    EXPECT((bytes->GetOutput()->GetPixel({ { 5, 5, z } }) == 0));
  }
}

// Voxels that are NaN, infinite or the largest float become the moving image's minimum, as in the C interface. The input is unchanged.
void
TestNonFinite()
{
  auto         fixed = Phantom(0), moving = Phantom(3);
  float *      voxels = moving->GetBufferPointer();
  const size_t n = moving->GetBufferedRegion().GetNumberOfPixels();
  std::for_each(voxels, voxels + n, [](float & v) { v -= 20; }); // so that the minimum is not 0
  const float none[] = { std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                         -std::numeric_limits<float>::infinity(), std::numeric_limits<float>::max() };
  for (size_t i = 0; i < 40; ++i)
  {
    voxels[n / 2 + 41 * i] = none[i % 4];
  }
  const std::vector<float> before(voxels, voxels + n);
  auto                     filter = Filter(fixed.GetPointer(), moving.GetPointer());
  filter->Update();
  auto warp = Warp<FloatImage>(moving, filter->GetTransform(), filter->GetOutput());
  warp->Update();
  EXPECT(std::memcmp(before.data(), voxels, n * sizeof(float)) == 0);
  const auto byC = RegisterByC(fixed, moving, Options(), true);
  double     most = 0;
  for (size_t i = 0; i < n; ++i)
  {
    const double difference = std::abs(byC.warped[i] - warp->GetOutput()->GetBufferPointer()[i]);
    most = difference <= most ? most : difference; // NaN counts
  }
  std::cout << "largest difference of the warped images: " << most << " of 160\n";
  EXPECT(most < 0.01);
}

// The uncertainty is the C interface's, on the fixed grid. An image handed out stays when the filter runs again without uncertainty.
void
TestUncertainty()
{
  auto fixed = Phantom(0), moving = Phantom(3);
  auto filter = Filter(fixed.GetPointer(), moving.GetPointer());
  auto options = Options();
  filter->SetRefine(options.refine = 0);
  filter->Update();
  EXPECT(filter->GetUncertaintyImage() == nullptr);
  filter->SetUncertainty(options.uncertainty = "on");
  filter->Update();

  const auto               byC = RegisterByC(fixed, moving, options);
  FloatImage::ConstPointer sd = filter->GetUncertaintyImage();
  EXPECT(sd->GetBufferedRegion() == fixed->GetBufferedRegion() && sd->GetOrigin() == fixed->GetOrigin());
  EXPECT(sd->GetSpacing() == fixed->GetSpacing() && sd->GetDirection() == fixed->GetDirection());
  double most = 0, least = 1e9;
  for (size_t i = 0; i < byC.uncertainty.size(); ++i)
  {
    most = std::max<double>(most, std::abs(byC.uncertainty[i] - sd->GetBufferPointer()[i]));
    least = std::min<double>(least, sd->GetBufferPointer()[i]);
  }
  std::cout << "uncertainty: least " << least << " mm, largest difference to the C interface " << most << " mm\n";
  EXPECT(!byC.uncertainty.empty() && most < 1e-4 && least > 0);

  filter->SetUncertainty("off");
  filter->Update();
  EXPECT(filter->GetUncertaintyImage() == nullptr && sd->GetBufferPointer()[0] == byC.uncertainty[0]);
}

void
TestErrors()
{
  auto fixed = Phantom(0), moving = Phantom(3);
  auto filter = Filter(fixed.GetPointer(), moving.GetPointer());
  filter->SetTau(-1);
  EXPECT(CodeOf(filter.GetPointer()) == MS_ERR_INVALID_ARGUMENT);
  filter->SetTau(1);
  filter->SetSmoothness("stiff");
  EXPECT(CodeOf(filter.GetPointer()) == MS_ERR_INVALID_ARGUMENT);
  filter->SetSmoothness("2.5");
  filter->SetModel("no-such-model");
  EXPECT(CodeOf(filter.GetPointer()) == MS_ERR_MODEL_NOT_FOUND);
  filter->SetModel("none");
  auto flat = Phantom(0);
  flat->FillBuffer(7);
  filter->SetMovingImage(flat);
  EXPECT(CodeOf(filter.GetPointer()) == MS_ERR_CONSTANT_VOLUME);
  filter->SetMovingImage(Phantom(0, { { { 28, 26, 1 } } }));
  EXPECT(CodeOf(filter.GetPointer()) == MS_ERR_THIN_VOLUME);
  filter->SetMovingImage(nullptr);
  const auto missing = Thrown<itk::ExceptionObject>([&] { filter->Update(); });
  EXPECT(missing.find("MovingImage") != std::string::npos);
  filter->SetMovingImage(moving); // after all these failures it still works
  EXPECT(CodeOf(filter.GetPointer()) == MS_OK);
}

// A doubt becomes a warning and a reason, makes a good verdict "check" and changes nothing else.
void
TestDoubts()
{
  const std::string doubt = "moving: its sform and its qform say two places.";
  const auto        fixed = Phantom(0), alike = Phantom(0.01);
  auto              filter = Filter(fixed.GetPointer(), alike.GetPointer());
  filter->Update();
  EXPECT(filter->GetVerdict() == "good" && filter->GetMetrics().find(doubt) == std::string::npos);
  using Field = itk::Image<itk::Vector<float, 3>, 3>;
  const Field::ConstPointer plain = filter->GetTransform()->GetDisplacementField();
  filter->AddDoubt(doubt);
  filter->AddDoubt("fixed: another.");
  filter->Update();
  EXPECT(filter->GetVerdict() == "check");
  EXPECT((filter->GetVerdictReasons() == std::vector<std::string>{ doubt, "fixed: another." }));
  EXPECT(filter->GetMetrics().find("\"warnings\":[\"" + doubt + "\",\"fixed: another.\"]") != std::string::npos);
  EXPECT(MaxDifference<Field>(filter->GetOutput(), plain) == 0);
  std::ostringstream text;
  filter->Print(text);
  EXPECT(text.str().find("Doubts: [" + doubt + "] [fixed: another.]") != std::string::npos);
  filter->ClearDoubts();
  filter->Update();
  EXPECT(filter->GetVerdict() == "good" && filter->GetMetrics().find(doubt) == std::string::npos);
}

// The fields of a NIfTI-1 header that lay an image of 21 x 31 x 11 voxels of 1 x 2 x 3 mm.
struct NiftiHeader
{
  std::int16_t size[3]{ 21, 31, 11 };
  std::int16_t sformCode{ 1 }, qformCode{ 1 };
  char         units{ 2 }; // mm
  float        pixdim[4]{ 1, 1, 2, 3 };
  float        quatern[3]{ 0, 0, 0 };
  float        qoffset[3]{ -10, -20, 30 };
  float        srow[3][4]{ { 1, 0, 0, -10 }, { 0, 2, 0, -20 }, { 0, 0, 3, 30 } };
};

// Writes a file of these fields, in the processor's byte order, and lets ITK read it.
FloatImage::Pointer
ReadNifti(const NiftiHeader & h)
{
  const std::int16_t dim[8] = { 3, h.size[0], h.size[1], h.size[2], 1, 1, 1, 1 };
  std::vector<char>  bytes(352 + size_t{ 1 } * h.size[0] * h.size[1] * h.size[2], 0);
  const auto         put = [&](size_t at, const auto & value) { std::memcpy(&bytes[at], &value, sizeof value); };
  put(0, std::int32_t{ 348 });
  put(40, dim);
  put(70, std::int16_t{ 2 }); // unsigned char
  put(72, std::int16_t{ 8 });
  put(76, h.pixdim);
  put(108, 352.0f);
  put(123, h.units);
  put(252, h.qformCode);
  put(254, h.sformCode);
  put(256, h.quatern);
  put(268, h.qoffset);
  put(280, h.srow);
  put(344, "n+1");
  const auto path =
    std::filesystem::temp_directory_path() / ("morphseek-" + std::to_string(std::random_device{}()) + ".nii");
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  auto reader = itk::ImageFileReader<FloatImage>::New();
  reader->SetImageIO(itk::NiftiImageIO::New());
  reader->SetFileName(path.string());
  reader->Update();
  std::filesystem::remove(path);
  return reader->GetOutput();
}

// The doubts of headers whose places, from which the distances were worked out by hand, are at right angles or known turns.
void
TestNiftiDoubts()
{
  const double pi = 3.14159265358979323846;
  const struct
  {
    const char *                       name;
    std::function<void(NiftiHeader &)> change;
    std::vector<std::string>           doubts;
  } cases[] = {
    { "both forms", [](NiftiHeader &) {}, {} },
    { "sform", [](NiftiHeader & h) { h.qformCode = 0, h.qoffset[0] = 500; }, {} },
    { "qform", [](NiftiHeader & h) { h.sformCode = 0, h.srow[0][3] = 500; }, {} },
    { "neither",
      [](NiftiHeader & h) { h.sformCode = h.qformCode = 0, h.srow[0][3] = 500; },
      { "its header does not say where it lies (sform_code and qform_code are 0); as by ITK x is taken to go to the "
        "left and y to the back,"
        " which other programs take to go to the front" } },
    { "other codes", [](NiftiHeader & h) { h.sformCode = 4, h.qformCode = 2; }, {} },
    { "seconds, too", [](NiftiHeader & h) { h.units = 2 | 8; }, {} },
    { "turned about x by an angle of cosine 0.28, and mirrored along z",
      [](NiftiHeader & h) {
        h.pixdim[0] = -1;
        h.quatern[0] = 0.6f;
        const float rows[3][4] = { { 1, 0, 0, -10 }, { 0, 0.56f, 2.88f, -20 }, { 0, 1.92f, -0.84f, 30 } };
        std::memcpy(h.srow, rows, sizeof rows);
      },
      {} },
    { "the axes in another order",
      [](NiftiHeader & h) {
        h.quatern[0] = h.quatern[1] = h.quatern[2] = 0.5f;
        const float rows[3][4] = { { 0, 0, 3, -10 }, { 1, 0, 0, -20 }, { 0, 2, 0, 30 } };
        std::memcpy(h.srow, rows, sizeof rows);
      },
      {} },
    { "almost half a turn about x, of which six digits of the quaternion say nothing",
      [pi](NiftiHeader & h) {
        const double t = 0.0005, c = std::cos(pi - 2 * t), s = std::sin(pi - 2 * t);
        h.size[1] = 400, h.size[2] = 2;
        h.quatern[0] = static_cast<float>(std::cos(t));
        h.srow[1][1] = static_cast<float>(2 * c), h.srow[1][2] = static_cast<float>(-3 * s);
        h.srow[2][1] = static_cast<float>(2 * s), h.srow[2][2] = static_cast<float>(3 * c);
      },
      {} },
    { "a sform of three digits", [](NiftiHeader & h) { h.srow[1][1] = 1.999f, h.srow[2][2] = 3.001f; }, {} },
    { "0.09 voxels apart", [](NiftiHeader & h) { h.qoffset[0] += 0.09f; }, {} },
    { "0.11 voxels apart",
      [](NiftiHeader & h) { h.qoffset[0] += 0.11f; },
      { "its sform and its qform say two places, up to 0.11 mm apart; the sform is taken" } },
    { "two places, of which ITK takes the sform",
      [](NiftiHeader & h) { h.qoffset[0] += 3, h.qoffset[1] -= 4; },
      { "its sform and its qform say two places, up to 5 mm apart; the sform is taken" } },
    { "two places, of which ITK takes the qform",
      [](NiftiHeader & h) { h.qoffset[0] += 3, h.qoffset[1] -= 4, h.sformCode = 2; },
      { "its sform and its qform say two places, up to 5 mm apart; the qform is taken" } },
    { "a qform mirrored along y: 60 mm become -60 mm",
      [](NiftiHeader & h) { h.quatern[0] = 1, h.pixdim[0] = -1, h.sformCode = 2; },
      { "its sform and its qform say two places, up to 120 mm apart; the qform is taken" } },
    { "a sheared sform: 12 mm along x at 60 mm along y",
      [](NiftiHeader & h) { h.srow[0][1] = 0.4f; },
      { "its sform and its qform say two places, up to 12 mm apart; the qform is taken",
        "its pixdim says voxels of 1 x 2 x 3 mm and its sform of 1 x 2.04 x 3 mm" } },
    { "another pixdim: (160, 210, 60) mm further",
      [](NiftiHeader & h) { h.pixdim[1] = h.pixdim[2] = h.pixdim[3] = 9, h.sformCode = 2; },
      { "its sform and its qform say two places, up to 271 mm apart; the qform is taken",
        "its pixdim says voxels of 9 x 9 x 9 mm and its sform of 1 x 2 x 3 mm" } },
    { "a negative pixdim: 20 mm become -20 mm",
      [](NiftiHeader & h) { h.pixdim[1] = -1, h.sformCode = 2; },
      { "its sform and ITK's reader say two places, up to 40 mm apart; the reader's is taken",
        "its pixdim has a negative size, which some programs read as a mirrored image" } },
  };
  for (const auto & c : cases)
  {
    std::cout << c.name << '\n';
    NiftiHeader header;
    c.change(header);
    const auto               image = ReadNifti(header);
    std::vector<std::string> wanted;
    for (const std::string & doubt : c.doubts)
    {
      wanted.push_back("moving: a.nii: " + doubt + '.');
    }
    const auto said = itk::MorphSeekNiftiDoubts(image->GetMetaDataDictionary(), image, "moving: a.nii");
    for (const std::string & doubt : said)
    {
      std::cout << "  " << doubt << '\n';
    }
    EXPECT(said == wanted);
  }

  // ITK writes the dictionary in the locale of C++.
  struct Comma : std::numpunct<char>
  {
    char
    do_decimal_point() const override
    {
      return ',';
    }
  };
  std::locale::global(std::locale(std::locale::classic(), new Comma));
  NiftiHeader fractional;
  fractional.qoffset[0] += 0.25f;
  const auto read = ReadNifti(fractional);
  EXPECT(
    itk::MorphSeekNiftiDoubts(read->GetMetaDataDictionary(), read, "a") ==
    std::vector<std::string>{ "a: its sform and its qform say two places, up to 0.25 mm apart; the sform is taken." });
  std::locale::global(std::locale::classic());

  // ITK 5.2 reads sizes in micrometres, and the origin as if it were in mm.
  NiftiHeader micrometres;
  micrometres.units = 3;
  const auto small = ReadNifti(micrometres);
  const bool isRight = std::abs(small->GetOrigin()[2] - 0.03) < 1e-6;
  const auto said = itk::MorphSeekNiftiDoubts(small->GetMetaDataDictionary(), small, "fixed");
  EXPECT(isRight ? said.empty()
                 : (said == std::vector<std::string>{ "fixed: its sform and ITK's reader say two places, up to 37.4 mm "
                                                      "apart; the reader's is taken." }));

  // What other versions of ITK read or keep, written into the dictionary.
  const auto image = ReadNifti({});
  const struct
  {
    std::map<std::string, std::string> fields;
    std::string                        doubt;
  } others[] = {
    { { { "qform_code", "0" }, { "pixdim[2]", "-2" } },
      "its pixdim has a negative size, which some programs read as a mirrored image" },
    { { { "qform_code", "0" }, { "pixdim[2]", "2.5" } },
      "its pixdim says voxels of 1 x 2.5 x 3 mm and its sform of 1 x 2 x 3 mm" },
    { { { "qform_code", "0" }, { "pixdim[2]", "0" } }, "" },
    { { { "qform_code", "0" }, { "pixdim[2]", "nan" } }, "" },
    { { { "qform_code", "0" }, { "srow_x", "1 0 0 -15" } },
      "its sform and ITK's reader say two places, up to 5 mm apart; the reader's is taken" },
    { { { "sform_code", "0" }, { "qoffset_x", "-15" } },
      "its qform and ITK's reader say two places, up to 5 mm apart; the reader's is taken" },
    { { { "nifti_type", "0" }, { "srow_x", "1 0 0 -15" } }, "" }, // Analyze
    { { { "srow_x", "1 0 0" } }, "" },
    { { { "srow_x", "no numbers" }, { "sform_code", "" } }, "" },
  };
  for (const auto & c : others)
  {
    auto dictionary = image->GetMetaDataDictionary();
    for (const auto & field : c.fields)
    {
      itk::EncapsulateMetaData(dictionary, field.first, field.second);
    }
    const auto doubts = itk::MorphSeekNiftiDoubts(dictionary, image, "a");
    EXPECT(doubts ==
           (c.doubt.empty() ? std::vector<std::string>{} : std::vector<std::string>{ "a: " + c.doubt + '.' }));
  }
  EXPECT(itk::MorphSeekNiftiDoubts({}, image, "a").empty());
  for (const float sign : { 1.0f, -1.0f }) // of the third axis, which ITK keeps from 5.3 on: 30 mm become -30 mm
  {
    auto dictionary = image->GetMetaDataDictionary();
    itk::EncapsulateMetaData(dictionary, "qfac", sign);
    const std::string doubt = "a: its sform and its qform say two places, up to 60 mm apart; the sform is taken.";
    EXPECT(itk::MorphSeekNiftiDoubts(dictionary, image, "a") ==
           (sign > 0 ? std::vector<std::string>{} : std::vector<std::string>{ doubt }));
  }
}

void
TestAbort()
{
  auto       filter = Filter(Phantom(0).GetPointer(), Phantom(3).GetPointer());
  const auto update = [&] { filter->Update(); };
  auto       stop = Stop::New();
  const auto tag = filter->AddObserver(itk::ProgressEvent(), stop);
  EXPECT(!Thrown<itk::ProcessAborted>(update).empty() && stop->calls > 0);
  stop->throws = true;
  EXPECT(Thrown<std::runtime_error>(update) == "an observer's own");
  filter->RemoveObserver(tag);

  filter->SetRefine(1000);
  std::atomic<bool> done{ false };
  std::thread       other([&] {
    while (!done)
    {
      if (filter->GetProgress() > 0.1f)
      {
        filter->AbortGenerateDataOn();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  EXPECT(!Thrown<itk::ProcessAborted>(update).empty());
  done = true;
  other.join();

  filter->SetRefine(5);
  filter->Update();
  ExpectShift(filter.GetPointer(), 3);
}

void
TestThreads()
{
  auto fixed = Phantom(0), moving = Phantom(3);
  auto alone = Filter(fixed.GetPointer(), moving.GetPointer());
  alone->Update();
  decltype(alone) filters[2] = { Filter(fixed.GetPointer(), moving.GetPointer()),
                                 Filter(fixed.GetPointer(), moving.GetPointer()) };
  std::thread     first([&] { filters[0]->Update(); }), second([&] { filters[1]->Update(); });
  first.join();
  second.join();
  for (const auto & filter : filters)
  {
    EXPECT(MaxDifference(filter->GetOutput(), alone->GetOutput()) < 1e-4);
  }
}

void
TestLabels()
{
  using Labels = itk::Image<unsigned short, 3>;
  auto filter = Filter(Phantom(0).GetPointer(), Phantom(3).GetPointer());
  filter->Update();
  auto labels = Phantom<Labels>(3);
  for (itk::ImageRegionIteratorWithIndex<Labels> it(labels, labels->GetBufferedRegion()); !it.IsAtEnd(); ++it)
  {
    it.Set(it.Get() > 50 ? 40000 : it.Get() > 20 ? 7 : 0);
  }
  auto warp = Warp<Labels>(labels, filter->GetTransform(), filter->GetOutput());
  warp->LabelsOn();
  warp->Update();
  size_t count[2] = { 0, 0 };
  for (itk::ImageRegionConstIterator<Labels> it(warp->GetOutput(), warp->GetOutput()->GetBufferedRegion());
       !it.IsAtEnd(); ++it)
  {
    EXPECT(it.Get() == 0 || it.Get() == 7 || it.Get() == 40000);
    count[0] += it.Get() == 7;
    count[1] += it.Get() == 40000;
  }
  EXPECT(count[0] > 100 && count[1] > 100);
}
} // namespace

int
main(int argc, char ** argv)
{
  const std::map<std::string, void (*)()> tests = {
    { "defaults", TestDefaults },
    { "folding", TestFolding },
    { "pipeline", TestPipeline },
    { "grids", TestGrids },
    { "pixel-types", TestPixelTypes },
    { "masks", TestMasks },
    { "errors", TestErrors },
    { "abort", TestAbort },
    { "threads", TestThreads },
    { "initial-transform", TestInitialTransform },
    { "initial-transform-of-part", TestInitialTransformOfPart },
    { "labels", TestLabels },
    { "locale", TestLocale },
    { "landmarks", TestLandmarks },
    { "uncertainty", TestUncertainty },
    { "background", TestBackground },
    { "channels", TestChannels },
    { "non-finite", TestNonFinite },
    { "doubts", TestDoubts },
    { "nifti-doubts", TestNiftiDoubts },
    { "verdict", TestVerdict },
  };
  itk::MultiThreaderBase::SetGlobalDefaultNumberOfThreads(2);
  try
  {
    for (const auto & test : tests)
    {
      if (argc < 2 || test.first == argv[1])
      {
        std::cout << "--- " << test.first << '\n';
        test.second();
      }
    }
    if (argc > 1 && tests.count(argv[1]) == 0)
    {
      std::cerr << "no such test: " << argv[1] << '\n';
      return 2;
    }
  }
  catch (const std::exception & error)
  {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return failures != 0;
}
