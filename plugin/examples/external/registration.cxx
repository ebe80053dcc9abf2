#include "registration.h"

#include "itkCommand.h"
#include "itkMorphSeekRegistrationFilter.h"
#include "itkMorphSeekWarpFilter.h"

#include <iostream>

Registered
RegisterImages(const ImageType * fixed, const ImageType * moving, const char * model)
{
  auto registration = itk::MorphSeekRegistrationFilter<ImageType>::New();
  registration->SetFixedImage(fixed);
  registration->SetMovingImage(moving);
  registration->SetModel(model);
  registration->AddObserver(itk::ProgressEvent(), [&](const itk::EventObject &) {
    std::cout << '\r' << static_cast<int>(100 * registration->GetProgress()) << " % " << std::flush;
  });
  registration->Update();

  auto warp = itk::MorphSeekWarpFilter<ImageType>::New();
  warp->SetInput(moving);
  warp->SetTransform(registration->GetTransform());
  warp->SetReferenceImage(registration->GetOutput());
  warp->Update();
  return { warp->GetOutput(), registration->GetFoldingPercentage() };
}
