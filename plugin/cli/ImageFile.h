// Checks image files for what ITK's readers pass over in silence: voxels that are cut short, checksums of compressed ones,
// nonsense in text headers. What its readers refuse, or end the process over, is left to them, in a child process.
#ifndef MorphSeekImageFile_h
#define MorphSeekImageFile_h

#include "itk_zlib.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <limits>
#include <map>
#include <new>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace imagefile
{
namespace fs = std::filesystem;

// Says what is wrong with a file.
struct Unsound : std::runtime_error
{
  using std::runtime_error::runtime_error;
};

// Refuses everything but files and folders: opening a pipe would wait for its writer.
inline void
RequireRegular(const fs::path & path)
{
  static const std::map<fs::file_type, std::string> kinds = { { fs::file_type::fifo, "pipe" },
                                                              { fs::file_type::socket, "socket" },
                                                              { fs::file_type::block, "device" },
                                                              { fs::file_type::character, "device" } };
  std::error_code                                   unknown;
  const auto                                        found = kinds.find(fs::status(path, unknown).type());
  if (found != kinds.end())
  {
    throw Unsound(path.string() + " is a " + found->second +
                  ", and no regular file; save what it gives to a file first");
  }
}

inline std::string
Lower(std::string text)
{
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

inline std::string
Trim(const std::string & text)
{
  const char * const blanks = " \t\r\n";
  const size_t       first = text.find_first_not_of(blanks);
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

inline std::string
Quoted(const std::string & text)
{
  return "'" + (text.size() <= 30 ? text : text.substr(0, 30) + "...") + "'";
}

inline bool
Ends(const fs::path & path, const std::vector<std::string> & suffixes)
{
  const std::string name = Lower(path.filename().string());
  return std::any_of(suffixes.begin(), suffixes.end(), [&](const std::string & suffix) {
    return name.size() > suffix.size() && name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0;
  });
}

// The text header of a MetaImage or an NRRD.
struct Header
{
  bool                               isMeta = false, isNrrd = false;
  std::map<std::string, std::string> fields; // NRRD's in lower case
  std::vector<std::string>           listed; // the lines behind LIST
  std::uint64_t                      end = 0;

  std::string
  operator[](const std::string & field) const
  {
    const auto found = fields.find(field);
    return found == fields.end() ? "" : found->second;
  }

  bool
  Says(const std::string & field) const
  {
    const std::string said = Lower((*this)[field]);
    if (!said.empty() && said != "true" && said != "false" && said != "1" && said != "0")
    {
      throw Unsound(field + " is " + Quoted((*this)[field]) + "; it must be True or False");
    }
    return said == "true" || said == "1";
  }

  // What says where the voxels are.
  std::string
  DataFile() const
  {
    return (*this)[isMeta ? "ElementDataFile" : "data file"] + (isNrrd ? (*this)["datafile"] : "");
  }

  // Whether ITK takes voxels of 1 mm because it says nothing of their size.
  bool
  LacksSpacing() const
  {
    const std::string spacings = Lower((*this)["spacings"]);
    const bool        isSaid = !spacings.empty() && spacings.find("nan") == std::string::npos;
    return (isMeta && fields.count("ElementSpacing") + fields.count("ElementSize") == 0) ||
           (isNrrd && fields.count("space directions") + fields.count("axis mins") + fields.count("axismins") == 0 &&
            !isSaid);
  }
};

// Reads the text header of a file; that of another format is empty.
inline Header
ReadHeader(const fs::path & path)
{
  Header header;
  header.isMeta = Ends(path, { ".mha", ".mhd" });
  header.isNrrd = Ends(path, { ".nrrd", ".nhdr" });
  std::error_code unknown;
  if ((!header.isMeta && !header.isNrrd) || !fs::is_regular_file(path, unknown))
  {
    return header;
  }
  std::string   text(1 << 22, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(&text[0], static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  bool isList = false;
  for (size_t at = 0, next = 0; at < text.size(); at = next)
  {
    next = std::min(text.find('\n', at), text.size() - 1) + 1;
    const std::string line = Trim(text.substr(at, next - at));
    if (isList && !line.empty())
    {
      header.listed.push_back(line);
    }
    if (isList)
    {
      continue;
    }
    header.end = next;
    const size_t sign = std::min(line.find(header.isMeta ? '=' : ':'), line.size());
    if (line.empty() && header.isNrrd)
    {
      break;
    }
    if (line.empty() || (header.isNrrd && (at == 0 || line[0] == '#' || line.compare(sign, 2, ":=") == 0)))
    {
      continue;
    }
    if (line.find('\0') != std::string::npos)
    {
      throw Unsound("its header is no text");
    }
    std::string field = Trim(line.substr(0, sign));
    if (sign == line.size() || field.empty())
    {
      throw Unsound("its header has the line " + Quoted(line) + ", which sets no field");
    }
    field = header.isNrrd ? Lower(field) : field;
    if (!header.fields.emplace(field, Trim(line.substr(sign + 1))).second)
    {
      throw Unsound("its header has " + Quoted(field) + " twice");
    }
    isList = header.DataFile().compare(0, 4, "LIST") == 0;
    if (field == "ElementDataFile" && !isList)
    {
      break;
    }
  }
  return header;
}

// The files that a text header names: one; a pattern with the first and last number, maybe with a step; or a list.
inline std::vector<fs::path>
DataFiles(const fs::path & path, const Header & header)
{
  static const std::regex numbered(
    R"(([^%]*%0?\d{0,3}d[^\s%]*)\s+(-?\d{1,9})\s+(-?\d{1,9})(?:\s+(-?\d{1,9}))?(?:\s+\d+)?)");
  const std::string        named = header.DataFile();
  std::vector<std::string> names = header.listed;
  std::smatch              match;
  if (named.size() <= 4096 && std::regex_match(named, match, numbered)) // no path is longer
  {
    const int last = std::stoi(match[3]), given = match[4].matched ? std::stoi(match[4]) : 1;
    const int step = given == 0 ? 1 : given;
    for (std::int64_t number = std::stoi(match[2]); step > 0 ? number <= last : number >= last; number += step)
    {
      std::vector<char> name(6000);
      std::snprintf(name.data(), name.size(), match.str(1).c_str(), static_cast<int>(number));
      names.emplace_back(name.data());
      if (!fs::exists(path.parent_path() / names.back())) // ITK reads nothing if one is missing
      {
        break;
      }
    }
  }
  else if (!named.empty() && names.empty() && Lower(named) != "local")
  {
    names.push_back(named);
  }
  std::vector<fs::path> files;
  for (const std::string & name : names)
  {
    files.push_back(path.parent_path() / name);
  }
  return files;
}

// The files that an image is in: its own, and those of a header and its voxels that are there.
inline std::vector<fs::path>
Parts(const fs::path & path)
{
  static const std::regex paired(R"((.*\.)(?:(hdr|img)(?:\.gz)?|spr|sdt))", std::regex::icase);
  std::vector<fs::path>   files = { path };
  std::error_code         unknown;
  std::smatch             own, other;
  const std::string       name = path.filename().string();
  if (std::regex_match(name, own, paired))
  {
    const fs::path folder = path.has_parent_path() ? path.parent_path() : ".";
    for (fs::directory_iterator file(folder, unknown), end; !unknown && file != end; file.increment(unknown))
    {
      const std::string there = file->path().filename().string();
      if (there != name && std::regex_match(there, other, paired) && other.str(1) == own.str(1) &&
          other[2].matched == own[2].matched)
      {
        files.push_back(path.parent_path() / there);
      }
    }
  }
  try
  {
    const auto named = DataFiles(path, ReadHeader(path));
    files.insert(files.end(), named.begin(), named.end());
  }
  catch (const Unsound &) // its reader refuses it
  {}
  files.erase(std::remove_if(files.begin() + 1, files.end(),
                             [&](const fs::path & file) { return !fs::is_regular_file(file, unknown); }),
              files.end());
  return files;
}

// Refuses what ITK's readers take of a text header without a word, and numbers over which they do not come to an end.
inline void
CheckHeader(const fs::path & path, const Header & header)
{
  for (const fs::path & file : DataFiles(path, header))
  {
    RequireRegular(file);
    if (!fs::is_regular_file(file))
    {
      throw Unsound("its voxels are in " + file.filename().string() + ", which is not there");
    }
  }
  const auto check = [&](const std::string & field, const std::regex & sound, const char * verb, const char * demand) {
    std::string text = header[field];
    const auto  isBracket = [](char c) { return c == '(' || c == ')' || c == ','; };
    std::replace_if(text.begin(), header.isNrrd ? text.end() : text.begin(), isBracket, ' ');
    std::istringstream words(text);
    for (std::string word; words >> word;)
    {
      if (word.size() > 64 || !std::regex_match(word, sound) || std::abs(std::atof(word.c_str())) > 1e15)
      {
        throw Unsound(field + verb + Quoted(word) + demand);
      }
    }
  };
  const std::string       digits = R"([-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,4})?)";
  static const std::regex whole(R"(0*[1-9]\d{0,9})"), number(digits),
    numberOrNone(digits + "|none|[-+]?nan", std::regex::icase),
    type("MET_(U?(CHAR|SHORT|INT|LONG|LONG_LONG)|FLOAT|DOUBLE|ULONG_LONG)");
  for (const char * field : { "NDims", "DimSize" })
  {
    check(field, whole, " is ", "; it must be a whole number above 0");
  }
  check("ElementType", type, " is ", ", which is no type of voxels");
  for (const char * field : { "ElementSpacing", "ElementSize", "Offset", "Origin", "Position", "CenterOfRotation",
                              "TransformMatrix", "Rotation", "Orientation" })
  {
    check(field, number, " has ", ", which is no number of a grid");
  }
  for (const char * field : { "space directions", "space origin", "measurement frame", "spacings" })
  {
    check(field, numberOrNone, " has ", ", which is no number of a grid");
  }
  for (const char * field : { "BinaryData", "BinaryDataByteOrderMSB", "ElementByteOrderMSB", "CompressedData" })
  {
    header.Says(field);
  }
  // without it ITK would decompress the header, too
  if (header.Says("CompressedData") && std::atoll(header["CompressedDataSize"].c_str()) <= 0 &&
      Lower(header["ElementDataFile"]) == "local")
  {
    throw Unsound("its header lacks CompressedDataSize");
  }
}

inline std::string
Content(const fs::path & path)
{
  std::ifstream      file(path, std::ios::binary);
  std::ostringstream all;
  all << file.rdbuf();
  return all.str();
}

// Says whether the header of a file, or of its pair, is one of Analyze: ITK lays such an image otherwise than SPM.
inline bool
IsAnalyze(const fs::path & path)
{
  for (const fs::path & file : Parts(path))
  {
    const gzFile in = Ends(file, { ".hdr", ".hdr.gz" }) ? gzopen(file.string().c_str(), "rb") : nullptr;
    char         header[348] = {};
    const bool   isWhole = in != nullptr && gzread(in, header, sizeof header) == sizeof header;
    gzclose(in);
    if (isWhole && std::memcmp(header + 344, "ni1", 4) != 0 && std::memcmp(header + 344, "n+1", 4) != 0)
    {
      return true;
    }
  }
  return false;
}

// Whether the content of a DICOM file has a modality LUT, which ITK does not tell of: the tag of that sequence and of its
// first item.
inline bool
HasModalityTable(const std::string & data)
{
  const std::string tag("\x28\x00\x00\x30", 4), item("\xFE\xFF\x00\xE0", 4);
  for (size_t at = data.find(tag); at != std::string::npos; at = data.find(tag, at + 1))
  {
    const size_t length = data.compare(at + 4, 2, "SQ") == 0 ? 8 : 4; // with or without the kind of value
    if (data.compare(std::min(at + 4 + length, data.size()), 4, item) == 0)
    {
      return true;
    }
  }
  return false;
}

// Whether the content of a DICOM file has all bytes of its pixels, if they are not compressed: GDCM makes up the others.
inline bool
HasPixels(const std::string & data, double bytes)
{
  const std::string tag("\xE0\x7F\x10\x00", 4);
  bool              isThere = false;
  for (size_t at = data.find(tag); at != std::string::npos && at + 12 <= data.size(); at = data.find(tag, at + 1))
  {
    isThere = true;
    const size_t  first = data[at + 4] == 'O' && (data[at + 5] == 'W' || data[at + 5] == 'B') ? at + 12 : at + 8;
    std::uint32_t length = 0; // little-endian, as the computers are
    std::memcpy(&length, &data[first - 4], sizeof length);
    const bool isPacked =
      length == 0xFFFFFFFF && data.find(std::string("\xFE\xFF\xDD\xE0", 4), first) != std::string::npos;
    if (isPacked || (length >= bytes && first + length <= data.size()))
    {
      return true;
    }
  }
  return !isThere; // deflated as a whole, or in the other order of bytes
}

// Decompresses a file from a byte on, checks its checksums, and returns how many bytes come out, or more than most. A gzip
// stream may have several members.
inline double
Unpack(const fs::path & path, std::uint64_t offset, double most)
{
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset));
  std::vector<unsigned char> in(1 << 18), out(1 << 20);
  z_stream                   stream = {};
  if (inflateInit2(&stream, 47) != Z_OK)
  {
    throw std::bad_alloc();
  }
  double found = 0;
  int    state = Z_OK;
  while (state >= 0 && found <= most)
  {
    if (stream.avail_in == 0)
    {
      file.read(reinterpret_cast<char *>(in.data()), static_cast<std::streamsize>(in.size()));
      stream.next_in = in.data();
      stream.avail_in = static_cast<unsigned int>(file.gcount());
      if (stream.avail_in == 0)
      {
        break;
      }
    }
    if (state == Z_STREAM_END)
    {
      if (stream.next_in[0] != 0x1f)
      {
        break; // no further gzip member follows
      }
      inflateReset(&stream);
    }
    stream.next_out = out.data();
    stream.avail_out = static_cast<unsigned int>(out.size());
    state = inflate(&stream, Z_NO_FLUSH);
    found += static_cast<double>(out.size() - stream.avail_out);
    state = state == Z_BUF_ERROR ? Z_OK : state;
  }
  inflateEnd(&stream);
  if (found <= most && state != Z_STREAM_END)
  {
    throw Unsound(state < 0 ? "it is damaged: its compressed voxels do not match their checksum; copy it again"
                            : "it is damaged: its compressed voxels are cut short; copy it again");
  }
  return found;
}

inline double
Limit()
{
  const char * const set = std::getenv("MORPHSEEK_INPUT_LIMIT_GB");
  char *             end = nullptr;
  const double       limit = set && *set ? std::strtod(set, &end) : 64;
  if (!(limit > 0) || (end != nullptr && *end != 0))
  {
    throw Unsound(std::string("MORPHSEEK_INPUT_LIMIT_GB is ") + Quoted(set) + "; it must be a number of GiB");
  }
  return limit;
}

// Checks that the files of an image can hold the voxels that ITK found in its header, and the checksums of compressed ones.
inline void
CheckVoxels(const fs::path & path, const Header & header, double count, double bytes)
{
  std::vector<fs::path> files = DataFiles(path, header);
  std::uint64_t         offset = 0;
  const bool            isText = header.isMeta || header.isNrrd, isAttached = files.empty();
  bool                  isPacked = !isText, isStream = false; // other formats may be compressed
  if (isText)
  {
    offset =
      isAttached ? header.end : static_cast<std::uint64_t>(std::max(0LL, std::atoll(header["HeaderSize"].c_str())));
    const std::string encoding = Lower(header["encoding"]);
    isPacked = isStream = header.isMeta ? header.Says("CompressedData") : encoding == "gzip" || encoding == "gz";
    const bool isBinary = header.isMeta ? header["BinaryData"].empty() || header.Says("BinaryData") : encoding == "raw";
    bytes = isPacked || isBinary ? bytes : count; // text: at least one byte a number
  }
  if (isAttached)
  {
    files = Parts(path);
    const bool isPlain = !isText && Ends(path, { ".gipl", ".gipl.gz", ".mrc", ".spr", ".vtk" });
    const bool isNifti = Ends(path, { ".nii", ".nii.gz", ".hdr", ".img", ".hdr.gz", ".img.gz" });
    if (isNifti)
    {
      const auto voxels = std::find_if(files.begin(), files.end(),
                                       [](const fs::path & file) { return Ends(file, { ".img", ".img.gz" }); });
      files = { voxels == files.end() ? path : *voxels };
      bytes += Ends(path, { ".nii", ".nii.gz" }) ? 352 : 0; // the header, at least
    }
    if (isNifti || isPlain)
    {
      std::string start(256, '\0');
      std::ifstream(files[0], std::ios::binary).read(&start[0], 256);
      isPacked = isStream = start[0] == 0x1f;
      bytes = Ends(path, { ".vtk" }) && start.find("ASCII") != std::string::npos ? count : bytes;
    }
  }
  double held = -static_cast<double>(offset);
  for (const fs::path & file : files)
  {
    held += static_cast<double>(fs::file_size(file));
  }
  std::ostringstream said;
  said << std::setprecision(17);
  if (isPacked && bytes > 1032 * (held + 1)) // deflate packs no denser
  {
    said << "its header claims " << bytes << " bytes of voxels, more than the " << held
         << " compressed ones can hold; copy it again";
  }
  else if (!isPacked && held < bytes)
  {
    said << files.front().string() << " is cut short: " << std::max(0.0, held) + static_cast<double>(offset) << " of "
         << bytes + static_cast<double>(offset) << " bytes are there; copy it again";
  }
  else if (const double limit = Limit(); bytes > limit * (1 << 30))
  {
    said << std::setprecision(6) << "its header claims " << bytes / (1 << 30) << " GiB of voxels, more than " << limit
         << " GiB; set MORPHSEEK_INPUT_LIMIT_GB to read more";
  }
  if (!said.str().empty())
  {
    throw Unsound(said.str());
  }
  double found = 0;
  for (size_t i = 0; isStream && i < files.size(); ++i)
  {
    found += Unpack(files[i], i == 0 ? offset : 0, isText ? bytes - found : std::numeric_limits<double>::max());
  }
  if (isStream && (found < bytes || (isText && found > bytes)))
  {
    throw Unsound(std::string("it is damaged: ") + (found < bytes ? "fewer" : "more") +
                  " voxels are compressed than its header says; copy it again");
  }
}
} // namespace imagefile

#endif
