"""The names of the formats of transforms, for a help that loads nothing else."""

NAMES = (
    "itk", "field", "field-ras", "spm", "ants", "fsl", "greedy", "lta", "elastix", "x5", "dicom",
)  # fmt: skip
