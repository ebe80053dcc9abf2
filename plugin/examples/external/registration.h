// The example's own layer over MorphSeek: two images in, the moving one on the fixed grid out.
#pragma once

#include "itkImage.h"

using ImageType = itk::Image<float, 3>;

struct Registered
{
  ImageType::Pointer warped;
  double             foldingPercentage;
};

// Registers and prints progress. model "none" needs no ONNX Runtime.
Registered
RegisterImages(const ImageType * fixed, const ImageType * moving, const char * model);
