// The example's own layer over MorphSeek: it takes two images and returns the moving one on the fixed grid.
#pragma once

#include "itkImage.h"

using ImageType = itk::Image<float, 3>;

struct Registered
{
  ImageType::Pointer warped;
  double             foldingPercentage;
};

// Registers and prints progress. The model "none" needs no ONNX Runtime.
Registered
RegisterImages(const ImageType * fixed, const ImageType * moving, const char * model);
