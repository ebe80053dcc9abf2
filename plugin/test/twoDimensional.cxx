// Must not compile: MorphSeek registers 3-D images.
#include "itkMorphSeekRegistrationFilter.h"

template class itk::MorphSeekRegistrationFilter<itk::Image<float, 2>>;
