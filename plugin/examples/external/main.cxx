// Registers two image files: example FIXED MOVING OUT [MODEL]
#include "itkImageFileReader.h"
#include "itkImageFileWriter.h"
#include "itkMorphSeekException.h"
#include "registration.h"

#include <iostream>

int
main(int argc, char ** argv)
{
  if (argc < 4)
  {
    std::cerr << "usage: example FIXED MOVING OUT [MODEL]\n";
    return 2;
  }
  try
  {
    const auto result = RegisterImages(itk::ReadImage<ImageType>(argv[1]), itk::ReadImage<ImageType>(argv[2]),
                                       argc > 4 ? argv[4] : "default");
    itk::WriteImage(result.warped.GetPointer(), argv[3], true);
    std::cout << "\nfolding: " << result.foldingPercentage << " % of the voxels\n";
    return 0;
  }
  catch (const itk::MorphSeekException & error)
  {
    std::cerr << "error " << error.GetCode() << ": " << error.GetDescription() << '\n';
  }
  catch (const itk::ExceptionObject & error)
  {
    std::cerr << error.GetDescription() << '\n';
  }
  return 1;
}
