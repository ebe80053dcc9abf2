/** \file
 * Part of ITKMorphSeek, the ITK module over morphseek.h: the verdict in a registration's metrics.
 */
#ifndef itkMorphSeekVerdict_h
#define itkMorphSeekVerdict_h

#include <cstdlib>
#include <string>
#include <vector>

namespace itk
{
/** \class MorphSeekVerdict
 * \brief Whether a registration can be trusted, as far as its images tell. It reads the member "verdict" of the metrics, which
 * morphseek.h describes at ms_result_metrics.
 *
 * \ingroup ITKMorphSeek
 */
class MorphSeekVerdict
{
public:
  MorphSeekVerdict() = default;

  /** Reads the metrics; members that are missing stay empty. */
  explicit MorphSeekVerdict(const std::string & metrics)
  {
    const std::string key = "\"verdict\":{"; // no JSON string contains it: its quotation marks would be escaped
    size_t            at = metrics.find(key);
    if (at == std::string::npos)
    {
      return;
    }
    at += key.size();
    while (At(metrics, at) == '"') // member by member
    {
      const std::string name = Text(metrics, at);
      ++at; // the colon
      if (name == "grade" && At(metrics, at) == '"')
      {
        m_Grade = Text(metrics, at);
      }
      else if (name == "reasons" && At(metrics, at) == '[')
      {
        for (++at; At(metrics, at) == '"'; at += At(metrics, at) == ',')
        {
          m_Reasons.push_back(Text(metrics, at));
        }
        ++at; // the bracket
      }
      else
      {
        if (name == "error_mm")
        {
          m_EstimatedError = std::strtod(metrics.c_str() + at, nullptr);
        }
        at = metrics.find_first_of(",}", at);
      }
      at += At(metrics, at) == ',';
    }
  }

  /** "good", "check" (look before use) or "failed" (do not use); empty where there is none. */
  const std::string &
  GetGrade() const
  {
    return m_Grade;
  }

  /** Why the grade is not "good", in plain words; empty if it is. */
  const std::vector<std::string> &
  GetReasons() const
  {
    return m_Reasons;
  }

  /** Estimated mean distance of points from where they belong, mm. */
  double
  GetEstimatedError() const
  {
    return m_EstimatedError;
  }

private:
  /** The character at a position; NUL beyond the end. */
  static char
  At(const std::string & json, size_t at)
  {
    return at < json.size() ? json[at] : '\0';
  }

  /** The JSON string at a position, which moves behind it. */
  static std::string
  Text(const std::string & json, size_t & at)
  {
    std::string text;
    for (++at; at < json.size() && json[at] != '"'; ++at)
    {
      if (json[at] != '\\' || at + 1 == json.size())
      {
        text += json[at];
        continue;
      }
      switch (const char escaped = json[++at])
      {
        case 'n':
          text += '\n';
          break;
        case 't':
          text += '\t';
          break;
        case 'u': // Go escapes <, > and &, and control characters
          AppendUTF8(std::strtoul(json.substr(at + 1, 4).c_str(), nullptr, 16), text);
          at += 4;
          break;
        default:
          text += escaped;
      }
    }
    ++at;
    return text;
  }

  static void
  AppendUTF8(unsigned long code, std::string & text)
  {
    if (code < 0x80)
    {
      text += static_cast<char>(code);
      return;
    }
    if (code < 0x800)
    {
      text += static_cast<char>(0xC0 | code >> 6);
    }
    else
    {
      text += static_cast<char>(0xE0 | code >> 12);
      text += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    }
    text += static_cast<char>(0x80 | (code & 0x3F));
  }

  std::string              m_Grade;
  std::vector<std::string> m_Reasons;
  double                   m_EstimatedError{ 0 };
};
} // namespace itk

#endif
