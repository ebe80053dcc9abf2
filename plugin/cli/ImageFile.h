// Checks image files before ITK reads them, as morphseek/images/headers.py does: ITK's readers abort the process on some headers, never
// return on others, allocate whatever size a header claims, and ignore the checksum of a compressed .mha or .nrrd.
#ifndef MorphSeekImageFile_h
#define MorphSeekImageFile_h

#include "itk_zlib.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <regex>
#include <set>
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
  std::error_code unknown;
  switch (fs::status(path, unknown).type())
  {
    case fs::file_type::fifo:
      throw Unsound(path.string() + " is a pipe, and no regular file; save what it gives to a file first");
    case fs::file_type::socket:
      throw Unsound(path.string() + " is a socket, and no regular file; save what it gives to a file first");
    case fs::file_type::block:
    case fs::file_type::character:
      throw Unsound(path.string() + " is a device, and no regular file; save what it gives to a file first");
    default:
      return;
  }
}

// Where the voxels of a file are, and how many bytes they have.
struct Stored
{
  fs::path      file;
  std::uint64_t offset = 0;
  double        size = 0; // exact up to 2^53; as double, so that no header's claim overflows it
  bool          packed = false;
};

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

inline std::vector<std::string>
Words(const std::string & text)
{
  std::istringstream       stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;)
  {
    words.push_back(word);
  }
  return words;
}

inline std::int64_t
Integer(const std::string & field, const std::string & text, std::int64_t least, std::int64_t most)
{
  const size_t sign = !text.empty() && (text[0] == '+' || text[0] == '-');
  const bool   plain = text.size() > sign && text.size() < sign + 19 &&
                       std::all_of(text.begin() + sign, text.end(), [](unsigned char c) { return std::isdigit(c); });
  const std::int64_t value = plain ? std::strtoll(text.c_str(), nullptr, 10) : 0;
  if (!plain || value < least || value > most)
  {
    throw Unsound(field + " is " + Quoted(text) + "; it must be a whole number, " + std::to_string(least) + " to " +
                  std::to_string(most));
  }
  return value;
}

// ITK never returns if products of a grid's numbers become infinite.
constexpr double mostNumber = 1e15;

inline void
Numbers(const std::string & field, const std::string & text, size_t count, bool unknown = false)
{
  const auto words = Words(text);
  if (words.size() != count)
  {
    throw Unsound(field + " has " + std::to_string(words.size()) + " numbers; it needs " + std::to_string(count));
  }
  for (const std::string & word : words)
  {
    char *       end = nullptr;
    const double value = std::strtod(word.c_str(), &end);
    const bool   plain = word.find_first_not_of("0123456789+-.eE") == std::string::npos;
    if (!(plain && *end == 0 && std::abs(value) <= mostNumber) &&
        !(unknown && Lower(word).find("nan") != std::string::npos))
    {
      throw Unsound(field + " has " + Quoted(word) + ", which is no number of a grid");
    }
  }
}

inline double
Voxels(const std::string & field, const std::string & text, size_t count)
{
  const auto words = Words(text);
  if (words.size() != count)
  {
    throw Unsound(field + " has " + std::to_string(words.size()) + " numbers; it needs " + std::to_string(count));
  }
  double voxels = 1;
  for (const std::string & word : words)
  {
    voxels *= static_cast<double>(Integer(field, word, 1, std::numeric_limits<std::int32_t>::max()));
  }
  return voxels;
}

// A header's lines up to the one that ends it; bytes becomes their number of bytes.
template <typename TEnds>
std::vector<std::string>
Lines(const fs::path & path, std::uint64_t & bytes, const TEnds & ends)
{
  const std::uint64_t      most = 1 << 24;
  std::ifstream            stream(path, std::ios::binary);
  std::vector<std::string> lines;
  std::string              line;
  bytes = 0;
  for (int c = stream.get(); c != EOF; c = stream.get())
  {
    ++bytes;
    if (c == 0 || bytes > most || (lines.empty() && line.size() > (1 << 16)))
    {
      throw Unsound(c == 0 ? "its header is no text" : "its header does not end");
    }
    if (c != '\n')
    {
      line.push_back(static_cast<char>(c));
      continue;
    }
    if (!line.empty() && line.back() == '\r')
    {
      line.pop_back();
    }
    lines.push_back(line);
    if (ends(line))
    {
      break;
    }
    line.clear();
  }
  return lines;
}

inline void
Require(const std::map<std::string, std::string> & fields, const std::vector<std::string> & names)
{
  for (const std::string & name : names)
  {
    const auto found = fields.find(name);
    if (found == fields.end() || found->second.empty())
    {
      throw Unsound("its header lacks " + name);
    }
  }
}

inline std::string
Value(const std::map<std::string, std::string> & fields, const std::string & name, const std::string & otherwise)
{
  const auto found = fields.find(name);
  return found == fields.end() ? otherwise : found->second;
}

// A file that a header names; empty for a list or a pattern of several, which ITK finds.
inline fs::path
Named(const fs::path & header, const std::string & text)
{
  const bool several = Words(text).empty() || Words(text)[0] == "LIST" || text.find('%') != std::string::npos;
  return several ? fs::path() : header.parent_path() / text;
}

inline Stored
Meta(const fs::path & path)
{
  static const std::vector<std::string>   vectors = { "ElementSpacing", "ElementSize", "Offset",
                                                      "Origin",         "Position",    "CenterOfRotation" };
  static const std::vector<std::string>   matrices = { "TransformMatrix", "Rotation", "Orientation" };
  static const std::map<std::string, int> types = {
    { "MET_CHAR", 1 },      { "MET_UCHAR", 1 }, { "MET_SHORT", 2 },      { "MET_USHORT", 2 },
    { "MET_INT", 4 },       { "MET_UINT", 4 },  { "MET_LONG", 4 },       { "MET_ULONG", 4 },
    { "MET_LONG_LONG", 8 }, { "MET_FLOAT", 4 }, { "MET_ULONG_LONG", 8 }, { "MET_DOUBLE", 8 }
  };
  std::set<std::string> sized(vectors.begin(), vectors.end());
  sized.insert(matrices.begin(), matrices.end());
  sized.insert("DimSize");
  std::uint64_t                      offset;
  std::map<std::string, std::string> fields;
  for (const std::string & line :
       Lines(path, offset, [](const std::string & l) { return l.compare(0, 15, "ElementDataFile") == 0; }))
  {
    if (Trim(line).empty())
    {
      continue;
    }
    const size_t      equals = line.find('=');
    const std::string field = Trim(line.substr(0, equals));
    if (equals == std::string::npos || field.empty())
    {
      throw Unsound("its header has the line " + Quoted(line) + ", which sets no field");
    }
    if (fields.count(field) != 0)
    {
      throw Unsound("its header has " + Quoted(field) + " twice");
    }
    if (fields.count("NDims") == 0 && sized.count(field) != 0)
    {
      throw Unsound("its header has " + field + " before NDims");
    }
    fields[field] = Trim(line.substr(equals + 1));
  }
  Require(fields, { "NDims", "DimSize", "ElementType", "ElementDataFile" });
  const auto axes = static_cast<size_t>(Integer("NDims", fields["NDims"], 1, 5));
  double     size = Voxels("DimSize", fields["DimSize"], axes);
  for (const std::string & field : sized)
  {
    if (field != "DimSize" && fields.count(field) != 0)
    {
      const bool matrix = std::find(matrices.begin(), matrices.end(), field) != matrices.end();
      Numbers(field, fields[field], matrix ? axes * axes : axes);
    }
  }
  for (const char * field : { "BinaryData", "BinaryDataByteOrderMSB", "ElementByteOrderMSB", "CompressedData" })
  {
    const std::string said = Lower(Value(fields, field, "0"));
    if (said != "true" && said != "false" && said != "1" && said != "0")
    {
      throw Unsound(std::string(field) + " is " + Quoted(fields[field]) + "; it must be True or False");
    }
  }
  const auto yes = [&](const char * field, const char * otherwise) {
    const std::string said = Lower(Value(fields, field, otherwise));
    return said == "true" || said == "1";
  };
  const auto type = types.find(fields["ElementType"]);
  if (type == types.end())
  {
    throw Unsound("ElementType is " + Quoted(fields["ElementType"]) + ", which is no type of voxels");
  }
  size *=
    static_cast<double>(Integer("ElementNumberOfChannels", Value(fields, "ElementNumberOfChannels", "1"), 1, 1 << 16));
  const std::int64_t most = std::int64_t{ 1 } << 62;
  const std::int64_t skip = Integer("HeaderSize", Value(fields, "HeaderSize", "0"), -1, most);
  const std::int64_t told = Integer("CompressedDataSize", Value(fields, "CompressedDataSize", "0"), 0, most);
  const bool         local = Lower(fields["ElementDataFile"]) == "local";
  if (yes("CompressedData", "false") && local && told == 0) // without it ITK would decompress the header, too
  {
    throw Unsound("its header lacks CompressedDataSize");
  }
  Stored stored;
  stored.file = local ? path : Named(path, fields["ElementDataFile"]);
  stored.offset = local ? offset : static_cast<std::uint64_t>(std::max<std::int64_t>(skip, 0));
  stored.size = size * (yes("BinaryData", "true") ? type->second : 1); // text: at least one byte a number
  stored.packed = yes("CompressedData", "false");
  return stored;
}

// Checks that a grid has the right number of vectors, each of the right length.
inline void
CheckSpace(std::map<std::string, std::string> & fields, size_t axes)
{
  const std::string space = Lower(Value(fields, "space", ""));
  size_t            length = 3;
  if (fields.count("space dimension") != 0)
  {
    length = static_cast<size_t>(Integer("space dimension", fields["space dimension"], 1, 5));
  }
  else if (space.size() == 4 || (space.size() > 5 && space.compare(space.size() - 5, 5, "-time") == 0))
  {
    length = 4;
  }
  const std::regex                    vector("\\([^()]*\\)|[^\\s()]+");
  const std::map<std::string, size_t> counts = { { "space directions", axes },
                                                 { "space origin", 1 },
                                                 { "measurement frame", length } };
  for (const auto & [field, count] : counts)
  {
    if (fields.count(field) == 0)
    {
      continue;
    }
    const std::string &      text = fields[field];
    std::vector<std::string> found;
    for (auto at = std::sregex_iterator(text.begin(), text.end(), vector); at != std::sregex_iterator(); ++at)
    {
      found.push_back(at->str());
    }
    if (found.size() != count)
    {
      throw Unsound("'" + field + "' has " + std::to_string(found.size()) + " vectors; it needs " +
                    std::to_string(count));
    }
    for (std::string one : found)
    {
      if (one[0] == '(')
      {
        std::replace(one.begin(), one.end(), ',', ' ');
        Numbers(field, one.substr(1, one.size() - 2), length);
      }
      else if (Lower(one) != "none" || count == 1)
      {
        throw Unsound("'" + field + "' has " + Quoted(one) + ", which is no vector");
      }
    }
  }
}

inline int
NrrdBytes(const std::string & type)
{
  static const std::vector<std::pair<int, std::set<std::string>>> types = {
    { 1, { "signed char", "int8", "int8_t", "uchar", "unsigned char", "uint8", "uint8_t" } },
    { 2,
      { "short", "short int", "signed short", "signed short int", "int16", "int16_t", "ushort", "unsigned short",
        "unsigned short int", "uint16", "uint16_t" } },
    { 4, { "int", "signed int", "int32", "int32_t", "uint", "unsigned int", "uint32", "uint32_t", "float" } },
    { 8,
      { "longlong", "long long", "long long int", "signed long long", "signed long long int", "int64", "int64_t",
        "ulonglong", "unsigned long long", "unsigned long long int", "uint64", "uint64_t", "double" } }
  };
  for (const auto & [bytes, names] : types)
  {
    if (names.count(Lower(type)) != 0)
    {
      return bytes;
    }
  }
  throw Unsound("its type is " + Quoted(type) + ", which is no type of voxels");
}

inline Stored
Nrrd(const fs::path & path)
{
  static const std::map<std::string, std::string> same = {
    { "axismins", "axis mins" },      { "axismaxs", "axis maxs" }, { "centerings", "centers" },
    { "lineskip", "line skip" },      { "byteskip", "byte skip" }, { "datafile", "data file" },
    { "blocksize", "block size" },    { "oldmin", "old min" },     { "oldmax", "old max" },
    { "sampleunits", "sample units" }
  };
  static const std::set<std::string> numbers = { "spacings", "thicknesses", "axis mins", "axis maxs" };
  static const std::set<std::string> words = { "centers", "kinds" };
  static const std::set<std::string> inSpace = { "space directions", "space origin", "measurement frame" };
  static const std::set<std::string> others = {
    "content",     "number",   "min",    "max",       "old min",    "old max",   "sample units",
    "space units", "labels",   "units",  "type",      "block size", "dimension", "sizes",
    "space",       "encoding", "endian", "line skip", "byte skip",  "data file", "space dimension"
  };
  std::uint64_t                      offset;
  const auto                         lines = Lines(path, offset, [](const std::string & l) { return l.empty(); });
  std::map<std::string, std::string> fields;
  if (lines.empty() || lines[0].size() != 8 || lines[0].compare(0, 7, "NRRD000") != 0 || lines[0][7] < '1' ||
      lines[0][7] > '5')
  {
    throw Unsound("it does not begin as NRRD");
  }
  for (size_t i = 1; i < lines.size(); ++i)
  {
    const std::string & line = lines[i];
    const size_t        colon = line.find(':');
    if (line.empty() || line[0] == '#' || (colon != std::string::npos && line.compare(colon, 2, ":=") == 0))
    {
      continue;
    }
    std::string field = Lower(Trim(line.substr(0, colon)));
    const auto  known = same.find(field);
    field = known == same.end() ? field : known->second;
    if (colon == std::string::npos || line.compare(colon, 2, ": ") != 0 ||
        numbers.count(field) + words.count(field) + inSpace.count(field) + others.count(field) == 0)
    {
      throw Unsound("its header has the line " + Quoted(line) + ", which sets no field of NRRD");
    }
    if (fields.count(field) != 0)
    {
      throw Unsound("its header has '" + field + "' twice");
    }
    if (fields.count("dimension") == 0 && (field == "sizes" || numbers.count(field) + words.count(field) != 0))
    {
      throw Unsound("its header has '" + field + "' before 'dimension'");
    }
    if (inSpace.count(field) != 0 && fields.count("space") + fields.count("space dimension") == 0)
    {
      throw Unsound("its header has '" + field + "' before 'space'");
    }
    fields[field] = Trim(line.substr(colon + 1));
    if (field == "data file" && fields[field].compare(0, 4, "LIST") == 0)
    {
      break;
    }
  }
  Require(fields, { "type", "dimension", "sizes", "encoding" });
  const auto   axes = static_cast<size_t>(Integer("dimension", fields["dimension"], 1, 5));
  const double voxels = Voxels("sizes", fields["sizes"], axes);
  for (const std::string & field : numbers)
  {
    if (fields.count(field) != 0)
    {
      Numbers(field, fields[field], axes, true);
    }
  }
  for (const std::string & field : words)
  {
    if (fields.count(field) != 0 && Words(fields[field]).size() != axes)
    {
      throw Unsound("'" + field + "' has " + std::to_string(Words(fields[field]).size()) + " words; it needs " +
                    std::to_string(axes));
    }
  }
  CheckSpace(fields, axes);
  int                bytes = NrrdBytes(fields["type"]);
  const std::string  encoding = Lower(fields["encoding"]), endian = Lower(Value(fields, "endian", ""));
  const std::int64_t linesSkipped = Integer("line skip", Value(fields, "line skip", "0"), 0, 1u << 31);
  const std::int64_t skip = Integer("byte skip", Value(fields, "byte skip", "0"), -1, std::int64_t{ 1 } << 62);
  const bool         packed = encoding == "gzip" || encoding == "gz";
  if (encoding != "raw" && !packed)
  {
    bytes = 1;
    if (encoding != "txt" && encoding != "text" && encoding != "ascii" && encoding != "hex")
    {
      throw Unsound("its encoding is " + Quoted(encoding) + "; write it anew as raw or gzip");
    }
  }
  else if (bytes > 1 && endian != "little" && endian != "big")
  {
    throw Unsound("its header does not say 'endian', little or big");
  }
  if (packed && (skip != 0 || linesSkipped != 0))
  {
    throw Unsound("its header skips a part of a compressed stream; write it anew without");
  }
  const bool attached = fields.count("data file") == 0;
  Stored     stored;
  stored.file = attached ? path : Named(path, fields["data file"]);
  stored.offset = (attached ? offset : 0) + static_cast<std::uint64_t>(std::max<std::int64_t>(skip, 0));
  stored.size = voxels * bytes;
  stored.packed = packed;
  return stored;
}

// Reads only the claimed size and the grid of a NIfTI header; ITK checks the rest.
inline Stored
Nifti(const fs::path & path)
{
  Stored        stored;
  const gzFile  file = gzopen(path.c_str(), "rb"); // reads uncompressed files, too
  unsigned char data[540] = {};
  const int     count = file ? gzread(file, data, sizeof data) : 0;
  stored.packed = file && gzdirect(file) == 0;
  gzclose(file);
  const auto number = [&](size_t at, size_t width, bool swapped) {
    std::uint64_t value = 0;
    for (size_t i = 0; i < width; ++i)
    {
      value |= static_cast<std::uint64_t>(data[at + (swapped ? width - 1 - i : i)]) << (8 * i);
    }
    return width == 8 ? static_cast<std::int64_t>(value)
                      : static_cast<std::int64_t>(static_cast<std::int32_t>(
                          width == 2 ? static_cast<std::int16_t>(value) : static_cast<std::int32_t>(value)));
  };
  for (const bool swapped : { false, true })
  {
    const std::int64_t length = number(0, 4, swapped);
    if ((length != 348 && length != 540) || count < length)
    {
      continue;
    }
    const size_t       width = length == 540 ? 8 : 2, first = length == 540 ? 16 : 40;
    const std::int64_t axes = number(first, width, swapped), bits = number(length == 540 ? 14 : 72, 2, swapped);
    if (axes < 1 || axes > 7 || bits < 1)
    {
      return stored;
    }
    // The numbers of the grid must be finite; only the forms that the header uses are checked.
    const auto real = [&](size_t at) {
      unsigned char bytes[8] = {};
      const size_t  width_ = length == 540 ? 8 : 4;
      for (size_t i = 0; i < width_; ++i)
      {
        bytes[i] = data[at + (swapped ? width_ - 1 - i : i)];
      }
      float  single = 0;
      double value = 0;
      std::memcpy(&single, bytes, sizeof single);
      std::memcpy(&value, bytes, sizeof value);
      return length == 540 ? value : static_cast<double>(single);
    };
    const bool   second = length == 540;
    const size_t step = second ? 8 : 4;
    const auto   check = [&](const char * field, size_t at, std::int64_t numbers) {
      for (std::int64_t i = 0; i < numbers; ++i)
      {
        const double value = real(at + step * static_cast<size_t>(i));
        if (!(std::abs(value) <= mostNumber))
        {
          throw Unsound(std::string(field) + " has " + std::to_string(value) + ", which is no number of a grid");
        }
      }
    };
    check("pixdim", second ? 104 : 76, 1 + std::min<std::int64_t>(axes, 3));
    if (number(second ? 344 : 252, second ? 4 : 2, swapped) > 0)
    {
      check("quatern", second ? 352 : 256, 6);
    }
    if (number(second ? 348 : 254, second ? 4 : 2, swapped) > 0)
    {
      check("srow", second ? 400 : 280, 12);
    }
    double size = static_cast<double>(bits) / 8;
    for (std::int64_t i = 1; i <= axes; ++i)
    {
      size *= std::max(0.0, static_cast<double>(number(first + width * static_cast<size_t>(i), width, swapped)));
    }
    stored.file = path;
    stored.size = size;
    return stored;
  }
  return stored;
}

// Decompresses the voxels in blocks and checks their checksums; a gzip stream may have several members.
// alone: the stream holds only voxels, as in .mha and .nrrd; a NIfTI's holds its header, too.
inline void
CheckStream(const Stored & stored, bool alone)
{
  std::ifstream file(stored.file, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(stored.offset));
  std::vector<unsigned char> in(1 << 18), out(1 << 20);
  z_stream                   stream = {};
  if (inflateInit2(&stream, 47) != Z_OK)
  {
    throw std::bad_alloc();
  }
  double found = 0;
  int    state = Z_OK;
  while (state >= 0)
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
    if (alone && found > stored.size)
    {
      break;
    }
  }
  inflateEnd(&stream);
  if (alone && found > stored.size)
  {
    throw Unsound("it is damaged: more voxels are compressed than its header says; copy it again");
  }
  if (state != Z_STREAM_END || found < stored.size)
  {
    throw Unsound(state < 0 ? "it is damaged: its compressed voxels do not match their checksum; copy it again"
                            : "it is damaged: its compressed voxels are cut short; copy it again");
  }
}

// Checks that a header is sound, that the file can hold what it claims, and that compressed voxels match their checksum. Other formats
// are left to ITK.
inline void
Check(const fs::path & path)
{
  RequireRegular(path);
  const std::string name = Lower(path.filename().string());
  const auto        ends = [&](const std::string & suffix) {
    return name.size() >= suffix.size() && name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0;
  };
  const bool meta = ends(".mha") || ends(".mhd"), nrrd = ends(".nrrd") || ends(".nhdr");
  if (!meta && !nrrd && !ends(".nii") && !ends(".nii.gz"))
  {
    return;
  }
  const Stored stored = meta ? Meta(path) : nrrd ? Nrrd(path) : Nifti(path);
  if (stored.file.empty())
  {
    return;
  }
  std::error_code unknown;
  if (!fs::exists(stored.file, unknown) || fs::is_directory(stored.file, unknown))
  {
    throw Unsound("its voxels are in " + stored.file.filename().string() + ", which is not there");
  }
  RequireRegular(stored.file);
  const double       held = static_cast<double>(fs::file_size(stored.file)) - static_cast<double>(stored.offset);
  std::ostringstream said;
  said.precision(17);
  if (stored.packed && stored.size > 1032 * (held + 1))
  {
    said << "its header claims " << stored.size << " bytes of voxels, more than the " << held
         << " compressed ones can hold; copy it again";
    throw Unsound(said.str());
  }
  if (!stored.packed && held < stored.size)
  {
    const double offset = static_cast<double>(stored.offset);
    said << "it is cut short: " << std::max(0.0, held) + offset << " of " << stored.size + offset
         << " bytes are there; copy it again";
    throw Unsound(said.str());
  }
  const char * const set = std::getenv("MORPHSEEK_INPUT_LIMIT_GB");
  char *             end = nullptr;
  const double       limit = set && *set ? std::strtod(set, &end) : 64;
  if (!(limit > 0) || (end != nullptr && *end != 0))
  {
    throw Unsound(std::string("MORPHSEEK_INPUT_LIMIT_GB is ") + Quoted(set) + "; it must be a number of GiB");
  }
  if (stored.size > limit * (1 << 30))
  {
    said << "its header claims " << stored.size / (1 << 30) << " GiB of voxels, more than " << limit
         << " GiB; set MORPHSEEK_INPUT_LIMIT_GB to read more";
    throw Unsound(said.str());
  }
  if (stored.packed)
  {
    CheckStream(stored, meta || nrrd);
  }
}
} // namespace imagefile

#endif
