/** \file
 * Part of ITKMorphSeek, the ITK module over morphseek.h: where the header of a NIfTI file contradicts itself.
 */
#ifndef itkMorphSeekNiftiDoubts_h
#define itkMorphSeekNiftiDoubts_h

#include "itkImageBase.h"
#include "itkMetaDataDictionary.h"
#include "itkMetaDataObject.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iomanip>
#include <limits>
#include <locale>
#include <sstream>
#include <string>
#include <vector>

namespace itk
{
/** \class MorphSeekNiftiHeader
 * \brief The fields of a NIfTI header that ITK's reader leaves in an image's dictionary, in six digits each.
 *
 * \ingroup ITKMorphSeek
 */
class MorphSeekNiftiHeader
{
public:
  using VectorType = Vector<double, 3>;

  /** The axes, each as long as a voxel, and the origin: LPS mm. */
  using PlaceType = std::array<VectorType, 4>;

  explicit MorphSeekNiftiHeader(const MetaDataDictionary & dictionary)
    : m_Dictionary(dictionary)
  {
    const double unit = std::fmod(this->Number("xyzt_units"), 8);
    m_Unit = unit == 1 ? 1e3 : unit == 3 ? 1e-3 : 1;
  }

  /** The number at a position of a field; NaN where there is none. */
  double
  Number(const std::string & field, unsigned int position = 0) const
  {
    std::string text;
    ExposeMetaData(m_Dictionary, field, text);
    std::istringstream stream(text); // of the global locale, as the reader's stream
    double             number = 0;
    for (unsigned int i = 0; i <= position; ++i)
    {
      stream >> number;
    }
    return stream ? number : std::numeric_limits<double>::quiet_NaN();
  }

  /** The sizes of a voxel by pixdim, mm. */
  VectorType
  Pixdim() const
  {
    VectorType sizes;
    for (unsigned int axis = 0; axis < 3; ++axis)
    {
      sizes[axis] = m_Unit * this->Number("pixdim[" + std::to_string(axis + 1) + ']');
    }
    return sizes;
  }

  PlaceType
  Sform() const
  {
    PlaceType place;
    for (unsigned int row = 0; row < 3; ++row)
    {
      for (unsigned int column = 0; column < 4; ++column)
      {
        place[column][row] = Lps(row) * m_Unit * this->Number(std::string("srow_") + "xyz"[row], column);
      }
    }
    return place;
  }

  /** The qform, by the sign of its third axis. error becomes the angle that is lost with the digits: most near a half turn. */
  PlaceType
  Qform(double sign, double & error) const
  {
    VectorType parts;
    for (unsigned int i = 0; i < 3; ++i)
    {
      parts[i] = this->Number(std::string("quatern_") + "bcd"[i]);
    }
    parts /= std::max(parts.GetNorm(), 1.0);
    const double square = std::max(1 - parts.GetSquaredNorm(), 0.0), digits = 2e-6;
    const double a = std::sqrt(square), b = parts[0], c = parts[1], d = parts[2];
    error = 2 * (std::sqrt(square + digits) - std::sqrt(std::max(square - digits, 0.0)));
    const double turn[3][3] = { { a * a + b * b - c * c - d * d, 2 * (b * c - a * d), 2 * (b * d + a * c) },
                                { 2 * (b * c + a * d), a * a + c * c - b * b - d * d, 2 * (c * d - a * b) },
                                { 2 * (b * d - a * c), 2 * (c * d + a * b), a * a + d * d - c * c - b * b } };
    PlaceType    place;
    for (unsigned int row = 0; row < 3; ++row)
    {
      for (unsigned int axis = 0; axis < 3; ++axis)
      {
        place[axis][row] = Lps(row) * turn[row][axis] * std::abs(this->Pixdim()[axis]) * (axis == 2 ? sign : 1);
      }
      place[3][row] = Lps(row) * m_Unit * this->Number(std::string("qoffset_") + "xyz"[row]);
    }
    return place;
  }

private:
  static double
  Lps(unsigned int row)
  {
    return row < 2 ? -1 : 1;
  }

  const MetaDataDictionary & m_Dictionary;
  double                     m_Unit;
};

/** Says where a NIfTI's sform, qform and pixdim contradict each other, or the place that ITK's reader gave the image, by more than a tenth
 * of a voxel at a corner; and that a file has neither form. Each sentence begins with the name. The image must lie where the NIfTI reader
 * laid it: other formats keep these fields of images that were resampled since.
 *
 * \code
 *   const auto image = itk::ReadImage<ImageType>("moving.nii.gz");
 *   for (const auto & doubt : itk::MorphSeekNiftiDoubts(image->GetMetaDataDictionary(), image, "moving"))
 *   {
 *     registration->AddDoubt(doubt);
 *   }
 * \endcode
 *
 * ITK 5.2 does not keep the sign of a qform's third axis: where it takes the sform, a qform mirrored along that axis goes unnoticed.
 *
 * \ingroup ITKMorphSeek
 */
inline std::vector<std::string>
MorphSeekNiftiDoubts(const MetaDataDictionary & dictionary, const ImageBase<3> * image, const std::string & name)
{
  using VectorType = MorphSeekNiftiHeader::VectorType;
  using PlaceType = MorphSeekNiftiHeader::PlaceType;
  const MorphSeekNiftiHeader header(dictionary);
  const bool                 hasSform = header.Number("sform_code") > 0, hasQform = header.Number("qform_code") > 0;
  if (!(header.Number("nifti_type") > 0)) // Analyze has other fields there
  {
    return {};
  }
  if (!hasSform && !hasQform)
  {
    return { name + ": its header does not say where it lies (sform_code and qform_code are 0); as by ITK x is taken "
                    "to go to the left and"
                    " y to the back, which other programs take to go to the front." };
  }

  const auto   region = image->GetLargestPossibleRegion();
  const auto & spacing = image->GetSpacing();
  VectorType   last, extent; // voxels and mm from the first voxel to the last
  for (unsigned int axis = 0; axis < 3; ++axis)
  {
    last[axis] = std::max(static_cast<double>(region.GetSize(axis)) - 1, 0.0);
    extent[axis] = last[axis] * spacing[axis];
  }
  const auto distance = [&](const PlaceType & place) { // of its corners from the image's, mm
    double most = 0;
    for (unsigned int corner = 0; corner < 8; ++corner)
    {
      auto       index = region.GetIndex();
      VectorType point = place[3];
      for (unsigned int axis = 0; axis < 3; ++axis)
      {
        const double steps = (corner >> axis & 1) != 0 ? last[axis] : 0;
        index[axis] += static_cast<IndexValueType>(steps);
        point += place[axis] * steps;
      }
      const auto there = image->TransformIndexToPhysicalPoint<double>(index).GetVectorFromOrigin();
      most = std::max(most, (there - point).GetNorm());
    }
    return most;
  };

  struct Form
  {
    std::string name;
    double      distance;
    bool        agrees;
  };
  std::vector<Form> forms;
  const auto        add = [&](const char * form, const PlaceType & place, double angle) {
    const double digits = 1e-5 * (place[3].GetNorm() + extent.GetNorm()) + angle * extent.GetNorm();
    const double tenth = 0.1 * std::min({ spacing[0], spacing[1], spacing[2] });
    forms.push_back({ form, distance(place), !(distance(place) > tenth + digits) }); // agrees if it has no numbers
  };
  const PlaceType sform = header.Sform();
  if (hasSform)
  {
    add("sform", sform, 0);
  }
  if (hasQform)
  {
    float           sign = 1;
    double          angle = 0;
    const bool      isKnown = ExposeMetaData(dictionary, "qfac", sign); // from ITK 5.3 on
    const PlaceType qform = header.Qform(sign < 0 ? -1 : 1, angle), mirrored = header.Qform(-1, angle);
    add("qform", isKnown || distance(qform) < distance(mirrored) ? qform : mirrored, angle);
  }

  std::vector<std::string> doubts;
  const auto               say = [&](const std::string & doubt) { doubts.push_back(name + ": " + doubt + '.'); };
  const auto               text = [](double number, int digits) {
    std::ostringstream stream;
    stream.imbue(std::locale::classic());
    stream << std::setprecision(digits) << number;
    return stream.str();
  };
  const auto wrong = std::find_if(forms.begin(), forms.end(), [](const Form & form) { return !form.agrees; });
  if (wrong != forms.end())
  {
    const Form & other = wrong == forms.begin() ? forms.back() : forms.front();
    say((other.agrees ? std::string("its sform and its qform") : "its " + wrong->name + " and ITK's reader") +
        " say two places, up to " + text(wrong->distance, 3) + " mm apart; the " +
        (other.agrees ? other.name : "reader's") + " is taken");
  }

  const VectorType sizes = header.Pixdim();
  bool             differ = false, isNegative = false;
  std::string      bySizes, bySform;
  for (unsigned int axis = 0; axis < 3; ++axis)
  {
    const double size = std::abs(sizes[axis]), length = sform[axis].GetNorm();
    differ = differ || (size != 0 && std::abs(size - length) * last[axis] > (0.1 + 1e-5 * last[axis]) * length);
    isNegative = isNegative || sizes[axis] < 0;
    bySizes += (axis == 0 ? "" : " x ") + text(size, 4);
    bySform += (axis == 0 ? "" : " x ") + text(length, 4);
  }
  if (hasSform && differ)
  {
    say("its pixdim says voxels of " + bySizes + " mm and its sform of " + bySform + " mm");
  }
  else if (isNegative)
  {
    say("its pixdim has a negative size, which some programs read as a mirrored image");
  }
  return doubts;
}
} // namespace itk

#endif
