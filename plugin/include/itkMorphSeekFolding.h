/** \file
 * Part of ITKMorphSeek, the ITK module over morphseek.h: where a displacement field folds.
 */
#ifndef itkMorphSeekFolding_h
#define itkMorphSeekFolding_h

#include "itkCrossHelper.h"
#include "itkImageRegionConstIteratorWithIndex.h"
#include "vnl/vnl_det.h"

#include <algorithm>

namespace itk
{
/** Percentage of the voxels of a displacement field (3-D, mm) where x + u(x) folds, that is, where the determinant of its
 * Jacobian is negative (NJD). It is computed as in MorphSeek's engine: central differences, one-sided at the border. It respects the
 * grid's direction, which DisplacementFieldJacobianDeterminantFilter ignores. Across a slice nothing changes.
 *
 * \ingroup ITKMorphSeek
 */
template <typename TDisplacementField>
double
MorphSeekFoldingPercentage(const TDisplacementField * field)
{
  using EdgeType = Vector<double, 3>;
  const auto   region = field->GetBufferedRegion();
  const double handedness = vnl_det(field->GetDirection().GetVnlMatrix());
  const auto   cross = CrossHelper<EdgeType>();
  size_t       folded = 0;
  for (ImageRegionConstIteratorWithIndex<TDisplacementField> it(field, region); !it.IsAtEnd(); ++it)
  {
    EdgeType edges[3]; // the voxel's edges after mapping; their lengths do not change the sign
    for (unsigned int axis = 0; axis < 3; ++axis)
    {
      auto before = it.GetIndex(), after = before;
      before[axis] -= before[axis] > region.GetIndex(axis);
      after[axis] += after[axis] < region.GetUpperIndex()[axis];
      const auto & u = field->GetPixel(before);
      const auto & v = field->GetPixel(after);
      const auto   steps = std::max<IndexValueType>(after[axis] - before[axis], 1); // a slice is as thick as its voxel
      for (unsigned int row = 0; row < 3; ++row)
      {
        edges[axis][row] = steps * field->GetSpacing()[axis] * field->GetDirection()[row][axis] + (v[row] - u[row]);
      }
    }
    folded += cross(edges[0], edges[1]) * edges[2] * handedness < 0;
  }
  return 100.0 * static_cast<double>(folded) / static_cast<double>(region.GetNumberOfPixels());
}
} // namespace itk

#endif
