/** \file
 * Part of ITKMorphSeek, the ITK module over morphseek.h: its exception.
 */
#ifndef itkMorphSeekException_h
#define itkMorphSeekException_h

#include "itkMacro.h"
#include "morphseek.h"

#include <string>

namespace itk
{
/** \class MorphSeekException
 * \brief A failure of the MorphSeek library: its message, and its status code to branch on.
 *
 * A registration that was aborted throws itk::ProcessAborted instead.
 *
 * \ingroup ITKMorphSeek
 */
class MorphSeekException : public ExceptionObject
{
public:
  itkTypeMacro(MorphSeekException, ExceptionObject);

  MorphSeekException(const char *        file,
                     unsigned int        line,
                     ms_status           code,
                     const std::string & message,
                     const char *        location)
    : ExceptionObject(file, line, message.c_str(), location)
    , m_Code(code)
  {}

  /** The code, one of morphseek.h's MS_ERR_. */
  ms_status
  GetCode() const
  {
    return m_Code;
  }

  /** Throws what the last call into the library reported, unless it succeeded. */
  static void
  ThrowUnlessOk(ms_status status, const char * location)
  {
    if (status != MS_OK)
    {
      throw MorphSeekException(__FILE__, __LINE__, status, ms_last_error(), location);
    }
  }

private:
  ms_status m_Code;
};
} // namespace itk

#endif
