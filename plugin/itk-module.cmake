# The module's description, as ITK's build system reads it.
set(DOCUMENTATION "Deformable registration of 3-D images by MorphSeek: multi-step latent policy search on learned features,
with an initial alignment and a refinement on the pair at hand. The filters are headers over MorphSeek's C library.")

itk_module(ITKMorphSeek
  DEPENDS
    ITKCommon
    ITKDisplacementField
    ITKImageFilterBase
    ITKImageGrid
    ITKImageStatistics
  TEST_DEPENDS
    ITKIONIFTI
    ITKTestKernel
  DESCRIPTION "${DOCUMENTATION}"
  EXCLUDE_FROM_DEFAULT
)
