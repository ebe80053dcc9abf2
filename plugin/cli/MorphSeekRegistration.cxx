// MorphSeekRegistration: registers two image files, as a command-line module of the Slicer Execution Model.
//
// Exit codes are those of the `morphseek` command (ms_errors_json): 0 done; 2 wrong usage; 3 an input; 4 a model; 5 the runtime, a
// device or memory; 6 the output; 128 and its number for a signal (130 for Ctrl-C); 1 a defect. Outputs appear all together at the end,
// or not at all.
#include "ImageFile.h"
#include "MorphSeekRegistrationXml.h"
#include "itkCommand.h"
#include "itkGDCMImageIO.h"
#include "itkGDCMSeriesFileNames.h"
#include "itkImageFileReader.h"
#include "itkImageFileWriter.h"
#include "itkImageIOFactory.h"
#include "itkImageSeriesReader.h"
#include "itkMetaDataObject.h"
#include "itkMorphSeekRegistrationFilter.h"
#include "itkMorphSeekWarpFilter.h"
#include "itkTransformFileReader.h"
#include "itkTransformFileWriter.h"
#include "itk_zlib.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iomanip>
#include <iostream>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <regex>
#include <set>
#include <sstream>
#include <system_error>
#include <thread>
#include <vector>

#ifdef __linux__
#  include <cerrno>
#  include <fcntl.h>
#  include <malloc.h>
#  include <spawn.h>
#  include <sys/resource.h>
#  include <sys/wait.h>
#  include <unistd.h>
#endif

namespace fs = std::filesystem;

namespace
{
using VolumeType = itk::Image<float, 3>;
using MaskType = itk::Image<unsigned char, 3>;
using LabelType = itk::Image<double, 3>; // ITK's nearest-neighbour interpolation computes in double anyway
using FilterType = itk::MorphSeekRegistrationFilter<VolumeType>;

const char * const tryTransform = "--try-transform"; // the flag with which this program starts itself, see TryTransform

// A failure with its status code and a sentence for the user.
struct Failure
{
  ms_status   code;
  std::string message;
};

// The description of an ITK exception, without the object and the address that ITK puts before it.
std::string
Reason(const itk::ExceptionObject & error)
{
  std::string       text = error.GetDescription();
  const std::string mark = "ITK ERROR: ";
  const size_t      at = text.rfind(mark);
  return at == std::string::npos ? text : text.substr(at + mark.size());
}

// ------------------------------------------------------------------------------------------------------------ Command line

// The arguments by their names in the XML: flags without their dashes, and "0" and "1" for the two images.
class Arguments
{
public:
  Arguments(int argc, char ** argv)
  {
    const std::set<std::string> flags = KnownFlags();
    int                         positional = 0;
    for (int i = 1; i < argc; ++i)
    {
      std::string argument = argv[i];
      if (argument.compare(0, 2, "--") != 0)
      {
        m_Values[std::to_string(positional++)] = argument;
        continue;
      }
      argument.erase(0, 2);
      const size_t      equals = argument.find('=');
      const std::string flag = argument.substr(0, equals);
      if (flags.count(flag) == 0)
      {
        throw Failure{ MS_ERR_INVALID_ARGUMENT, "--" + flag + " is not an option; see --help" };
      }
      if (equals != std::string::npos)
      {
        m_Values[flag] = argument.substr(equals + 1);
      }
      else if (++i < argc)
      {
        m_Values[flag] = argv[i];
      }
      else
      {
        throw Failure{ MS_ERR_INVALID_ARGUMENT, "--" + flag + " needs a value" };
      }
    }
    if (positional != 2)
    {
      throw Failure{ MS_ERR_INVALID_ARGUMENT, "give two images, fixed and moving; see --help" };
    }
  }

  // The value of a flag; empty if it was not given.
  std::string
  operator[](const std::string & name) const
  {
    const auto found = m_Values.find(name);
    return found == m_Values.end() ? "" : found->second;
  }

  // Calls set with the value of a flag, if it was given.
  void
  Text(const std::string & name, const std::function<void(const std::string &)> & set) const
  {
    if (!(*this)[name].empty())
    {
      set((*this)[name]);
    }
  }

  template <typename TNumber>
  void
  Number(const std::string & name, const std::function<void(TNumber)> & set) const
  {
    this->Text(name, [&](const std::string & text) {
      std::istringstream stream(text);
      TNumber            value;
      if (!(stream >> value) || stream.peek() != EOF || (std::is_unsigned<TNumber>::value && text[0] == '-'))
      {
        throw Failure{ MS_ERR_INVALID_ARGUMENT,
                       "--" + name + " " + text + " is not a number that it takes; see --help" };
      }
      set(value);
    });
  }

  // Calls Text or Number, as the type of the flag's member in ms_options requires.
  template <typename TValue>
  void
  Option(std::string member, const std::function<void(const TValue &)> & set) const
  {
    std::replace(member.begin(), member.end(), '_', '-');
    if constexpr (std::is_same<TValue, std::string>::value)
    {
      this->Text(member, set);
    }
    else
    {
      this->Number<TValue>(member, set);
    }
  }

  // The flags in the XML, which all take a value, and those that the Slicer Execution Model adds.
  static std::set<std::string>
  KnownFlags()
  {
    const std::string     text = xml, open = "<longflag>";
    std::set<std::string> flags = { "returnparameterfile", "processinformationaddress" };
    for (size_t at = text.find(open); at != std::string::npos; at = text.find(open, at))
    {
      at += open.size();
      flags.insert(text.substr(at, text.find('<', at) - at));
    }
    return flags;
  }

private:
  std::map<std::string, std::string> m_Values;
};

void
PrintHelp()
{
  std::cout << "MorphSeekRegistration FIXED MOVING [--FLAG VALUE]...\n\nRegisters MOVING onto FIXED. --xml describes "
               "the flags; they are:\n ";
  for (const std::string & flag : Arguments::KnownFlags())
  {
    std::cout << " --" << flag;
  }
  std::cout << "\nResearch software; not a medical device.\n";
}

// ----------------------------------------------------------------------------------------------------------------- Signals

// The state that a signal needs to end the process. ITK's readers cannot be told to stop, so a separate thread removes what is half
// written and ends the process. It waits for the lock, so code that holds the lock is not interrupted.
struct Ending
{
  std::mutex         lock;
  std::set<fs::path> folders;           // temporary folders to remove
  bool               finished{ false }; // the outputs are in their places
  std::atomic<long>  child{ 0 };        // the child process of TryTransform, or 0
};

Ending &
TheEnding()
{
  static Ending * ending = new Ending; // never deleted: the signal thread may read it until the process ends
  return *ending;
}

std::atomic<int> signalled{ 0 };

[[noreturn]] void
EndBySignal(int number)
{
  Ending & ending = TheEnding();
  ending.lock.lock(); // never unlocked, unless the outputs are complete: no new work starts, and main cannot return
  if (ending.finished)
  {
    ending.lock.unlock();
    for (;;)
    {
      std::this_thread::sleep_for(std::chrono::hours(1));
    }
  }
#ifndef _WIN32
  if (ending.child > 0)
  {
    kill(static_cast<pid_t>(ending.child), SIGKILL);
  }
#endif
  for (const fs::path & folder : ending.folders)
  {
    std::error_code error;
    for (int i = 0; i < 100; ++i) // a writer may still add a file while the others are removed
    {
      fs::remove_all(folder, error);
      if (!error && !fs::exists(folder, error))
      {
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  std::cerr << "MorphSeekRegistration: cancelled" << std::endl;
  std::_Exit(128 + number);
}

void
StopOnSignals()
{
#ifndef _WIN32 // SA_ONSTACK: the Go runtime's threads have a stack of their own for signals
  for (const int number : { SIGINT, SIGTERM, SIGHUP })
  {
    struct sigaction action = {}, before = {};
    action.sa_handler = [](int n) { signalled = n; };
    action.sa_flags = SA_ONSTACK | SA_RESTART;
    if (sigaction(number, nullptr, &before) == 0 && before.sa_handler != SIG_IGN) // respects nohup
    {
      sigaction(number, &action, nullptr);
    }
  }
#else
  std::signal(SIGINT, [](int n) { signalled = n; });
#endif
  std::thread([] {
    while (signalled == 0)
    {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    EndBySignal(signalled);
  }).detach();
}

// ------------------------------------------------------------------------------------------------------------------ Inputs

// The one DICOM series in a folder.
std::vector<std::string>
SeriesFiles(const std::string & folder, const std::string & name)
{
  auto names = itk::GDCMSeriesFileNames::New();
  names->SetDirectory(folder);
  const auto & series = names->GetSeriesUIDs();
  if (series.size() != 1)
  {
    throw Failure{ MS_ERR_INPUT_UNREADABLE, name + ": the folder " + folder + " holds " +
                                              std::to_string(series.size()) +
                                              " DICOM series; give a folder with one, or a file" };
  }
  return names->GetFileNames(series.front());
}

// Whether a compressed file is complete and matches its checksum: ITK reads zeros where a NIfTI is cut off. True for uncompressed files.
bool
IsWhole(const std::string & path)
{
  const gzFile      file = gzopen(path.c_str(), "rb");
  std::vector<char> buffer(1 << 20);
  int               count;
  do
  {
    count = gzread(file, buffer.data(), static_cast<unsigned int>(buffer.size()));
  } while (count > 0);
  return gzclose(file) == Z_OK && count == 0;
}

// Checks that an uncompressed NIfTI or Analyze file has all its voxels: ITK silently reads the missing ones as zeros.
void
CheckLength(const std::string & path, const std::string & name, const itk::ImageIOBase & io)
{
  fs::path       voxels = path;
  std::uintmax_t header = 0;
  if (voxels.extension() == ".nii")
  {
    header = 352; // at least
  }
  else if (voxels.extension() == ".hdr" || voxels.extension() == ".img")
  {
    voxels.replace_extension(".img");
  }
  else
  {
    return;
  }
  std::string          bits; // bits per stored number; with a slope, ITK reports the size of a float instead
  const std::uintmax_t bytes = itk::ExposeMetaData(io.GetMetaDataDictionary(), "bitpix", bits)
                                 ? io.GetImageSizeInPixels() * static_cast<std::uintmax_t>(std::atoi(bits.c_str())) / 8
                                 : static_cast<std::uintmax_t>(io.GetImageSizeInBytes());
  const std::uintmax_t needed = header + bytes;
  std::error_code      unknown; // if the voxels are elsewhere, ITK finds them
  const std::uintmax_t found = fs::file_size(voxels, unknown);
  if (!unknown && found < needed)
  {
    throw Failure{ MS_ERR_INPUT_UNREADABLE, name + ": " + voxels.string() + " is cut short: " + std::to_string(found) +
                                              " of " + std::to_string(needed) + " bytes are there; copy it again" };
  }
}

// A number of millimetres for a message.
std::string
Tenths(double x)
{
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << x;
  return text.str();
}

// A number for a message, with just enough digits to identify it among the values of its type.
std::string
Digits(double x, bool isFloat)
{
  std::string text;
  for (int precision = 6; precision <= 17; ++precision)
  {
    std::ostringstream stream;
    stream << std::setprecision(precision) << x;
    text = stream.str();
    const double read = std::strtod(text.c_str(), nullptr);
    if (isFloat ? static_cast<float>(read) == static_cast<float>(x) : read == x)
    {
      break;
    }
  }
  return text;
}

// Checks that every slice of a series lies where its header says: ITK assumes a straight, even stack from the first to the last.
template <typename TImage>
void
CheckStack(const itk::ImageSeriesReader<TImage> & reader,
           const TImage &                         image,
           const std::string &                    folder,
           const std::string &                    name)
{
  using Vector = itk::Vector<double, 3>;
  const auto &        slices = *reader.GetMetaDataDictionaryArray();
  std::vector<Vector> corners;
  for (const auto * slice : slices)
  {
    std::string text;
    Vector      corner;
    if (!itk::ExposeMetaData(*slice, "0020|0032", text) ||
        std::sscanf(text.c_str(), "%lf\\%lf\\%lf", &corner[0], &corner[1], &corner[2]) != 3)
    {
      return; // a slice without a position cannot be checked
    }
    corners.push_back(corner);
  }
  if (corners.size() < 2 || corners.size() != image.GetLargestPossibleRegion().GetSize(2))
  {
    return;
  }
  Vector normal;
  for (unsigned int row = 0; row < 3; ++row)
  {
    normal[row] = image.GetDirection()[row][2];
  }
  std::vector<double> gaps;
  for (std::size_t i = 1; i < corners.size(); ++i)
  {
    gaps.push_back((corners[i] - corners[i - 1]) * normal);
  }
  std::sort(gaps.begin(), gaps.end());
  const double step = std::abs((gaps[(gaps.size() - 1) / 2] + gaps[gaps.size() / 2]) / 2);
  if (step < 1e-3 * std::min(image.GetSpacing()[0], image.GetSpacing()[1]))
  {
    throw Failure{ MS_ERR_INPUT_UNREADABLE,
                   name + ": " + std::to_string(corners.size()) + " slices in " + folder +
                     " are all at one position; give one volume, each slice at its own place" };
  }
  if (gaps.back() - gaps.front() > 0.1 * step)
  {
    throw Failure{ MS_ERR_INPUT_UNREADABLE, name + ": the slices in " + folder + " are " + Tenths(gaps.front()) +
                                              " to " + Tenths(gaps.back()) +
                                              " mm apart; complete the series, or resample it evenly" };
  }
  double off = 0;
  for (std::size_t i = 0; i < corners.size(); ++i)
  {
    typename TImage::IndexType index{ { 0, 0, static_cast<itk::IndexValueType>(i) } };
    typename TImage::PointType point;
    image.TransformIndexToPhysicalPoint(index, point);
    off = std::max(off, (corners[i] - point.GetVectorFromOrigin()).GetNorm());
  }
  // direction cosines may have only three digits, hence the 0.005
  if (off > 0.1 * step + 0.005 * step * static_cast<double>(corners.size()))
  {
    throw Failure{ MS_ERR_INPUT_UNREADABLE, name + ": the slices in " + folder +
                                              " are no straight stack (a tilted gantry?): read as one, some would be " +
                                              Tenths(off) +
                                              " mm off; resample the series first, for instance by dcm2niix" };
  }
}

// Reads one scalar volume. component, if given, becomes the pixel type on disk.
template <typename TImage>
typename TImage::Pointer
ReadVolume(const std::string & path, const std::string & name, itk::IOComponentEnum * component = nullptr)
{
  if (!fs::exists(path))
  {
    throw Failure{ MS_ERR_INPUT_UNREADABLE, name + ": " + path + " does not exist; check the path" };
  }
  try
  {
    imagefile::Check(path);
    if (fs::is_directory(path))
    {
      size_t count = 0;
      for (const auto & entry : fs::directory_iterator(path)) // GDCM opens every file of the folder
      {
        imagefile::RequireRegular(entry.path());
        if (++count > 20000) // a series has a few thousand
        {
          throw Failure{ MS_ERR_INPUT_UNREADABLE,
                         name + ": the folder " + path +
                           " holds more than 20000 files; give a folder with the slices of one series" };
        }
      }
      auto reader = itk::ImageSeriesReader<TImage>::New();
      reader->SetImageIO(itk::GDCMImageIO::New());
      reader->SetFileNames(SeriesFiles(path, name));
      reader->Update();
      CheckStack(*reader, *reader->GetOutput(), path, name);
      return reader->GetOutput();
    }
    auto io = itk::ImageIOFactory::CreateImageIO(path.c_str(), itk::ImageIOFactory::IOFileModeEnum::ReadMode);
    if (!io)
    {
      throw Failure{ MS_ERR_INPUT_UNREADABLE, name + ": " + path + " is in no image format that ITK reads" };
    }
    if (fs::path(path).extension() == ".gz" && !IsWhole(path))
    {
      throw Failure{ MS_ERR_INPUT_UNREADABLE,
                     name + ": " + path + " cannot be read as an image: the file is cut off or damaged" };
    }
    io->SetFileName(path);
    io->ReadImageInformation();
    CheckLength(path, name, *io);
    if (io->GetNumberOfDimensions() < 3)
    {
      throw Failure{ MS_ERR_THIN_VOLUME,
                     name + ": " + path +
                       " has two dimensions; give an image of three, in which a slice has one voxel of thickness" };
    }
    for (unsigned int axis = 3; axis < io->GetNumberOfDimensions(); ++axis)
    {
      if (io->GetDimensions(axis) != 1)
      {
        throw Failure{ MS_ERR_INPUT_UNREADABLE, name + ": " + path + " holds a series of volumes; give one of them" };
      }
    }
    if (io->GetNumberOfComponents() != 1)
    {
      throw Failure{ MS_ERR_INPUT_UNREADABLE, name + ": " + path + " has " +
                                                std::to_string(io->GetNumberOfComponents()) +
                                                " components a voxel; give a scalar volume" };
    }
    if (component != nullptr)
    {
      *component = io->GetComponentType();
    }
    auto reader = itk::ImageFileReader<TImage>::New();
    reader->SetImageIO(io);
    reader->SetFileName(path);
    reader->Update();
    return reader->GetOutput();
  }
  catch (const imagefile::Unsound & error)
  {
    throw Failure{ MS_ERR_INPUT_UNREADABLE, name + ": " + path + " cannot be read as an image: " + error.what() };
  }
  catch (const itk::ExceptionObject & error)
  {
    throw Failure{ MS_ERR_INPUT_UNREADABLE, name + ": " + path + " cannot be read as an image: " + Reason(error) };
  }
}

// Reads a mask: 1 where the file is not zero. It is read as float, so that neither a probability nor a large label becomes zero.
MaskType::Pointer
ReadMask(const std::string & path, const std::string & name)
{
  auto volume = ReadVolume<VolumeType>(path, name);
  auto mask = MaskType::New();
  mask->CopyInformation(volume);
  mask->SetRegions(volume->GetBufferedRegion());
  mask->Allocate();
  const float * voxels = volume->GetBufferPointer();
  std::transform(voxels, voxels + volume->GetBufferedRegion().GetNumberOfPixels(), mask->GetBufferPointer(),
                 [](float v) { return v != 0; });
  return mask;
}

// Reads labels and checks that double holds each of them as a whole number: ITK would silently change others. component becomes the
// pixel type to write them with: the file's, or the first of int, unsigned int and long long that holds them all.
LabelType::Pointer
ReadLabels(const std::string & path, const std::string & name, itk::IOComponentEnum & component)
{
  auto labels = ReadVolume<LabelType>(path, name, &component);
  // ITK scales whole numbers of a NIfTI (scl_slope, scl_inter) in float, which rounds beyond 2^24.
  std::string    stored;
  const bool     isFloat = component == itk::IOComponentEnum::FLOAT;
  const bool     scaled = isFloat && itk::ExposeMetaData(labels->GetMetaDataDictionary(), "datatype", stored) &&
                          stored != "16";                   // NIfTI's code of float
  const double   limit = std::ldexp(1.0, scaled ? 24 : 53); // refused too: the next number may have been rounded to it
  double         least = 0, greatest = 0;
  const double * voxels = labels->GetBufferPointer();
  for (itk::SizeValueType i = 0; i < labels->GetBufferedRegion().GetNumberOfPixels(); ++i)
  {
    const double value = voxels[i];
    if (!std::isfinite(value) || value != std::floor(value))
    {
      throw Failure{ MS_ERR_INPUT_UNREADABLE, name + ": " + path + " has the value " + Digits(value, isFloat) +
                                                "; labels must be whole numbers, give a label map or round it first" };
    }
    if (std::abs(value) >= limit)
    {
      const std::string remedy =
        scaled ? "labels scaled in their file must be smaller than 2^24, renumber them or store them without scl_slope"
               : "labels must be smaller than 2^53, renumber them";
      throw Failure{ MS_ERR_INPUT_UNREADABLE,
                     name + ": " + path + " has a value of about " + Digits(value, isFloat) + "; " + remedy };
    }
    least = std::min(least, value);
    greatest = std::max(greatest, value);
  }
  if (component != itk::IOComponentEnum::UCHAR && component != itk::IOComponentEnum::SHORT &&
      component != itk::IOComponentEnum::USHORT)
  {
    const auto within = [&](auto lowest, auto highest) { return least >= lowest && greatest <= highest; };
    component = within(std::numeric_limits<int>::lowest(), std::numeric_limits<int>::max()) ? itk::IOComponentEnum::INT
                : within(0u, std::numeric_limits<unsigned int>::max()) ? itk::IOComponentEnum::UINT
                                                                       : itk::IOComponentEnum::LONGLONG;
  }
  return labels;
}

// Reads a transform's file in a child process first: on some damaged files ITK's transform readers, HDF5's above all, abort the process,
// and on others they allocate whatever size the file claims.
void
TryTransform(const std::string & path)
{
#ifdef __linux__
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
  {
    return; // no file descriptors are left: the real reading fails with a message
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  std::string own = "/proc/self/exe", flag = tryTransform, file = path;
  char *      arguments[] = { &own[0], &flag[0], &file[0], nullptr };
  pid_t       child = 0;
  const int   failed = posix_spawn(&child, own.c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string said;
  char        buffer[4096];
  TheEnding().child = child;
  for (ssize_t count; failed == 0 && (count = read(ends[0], buffer, sizeof buffer)) != 0;)
  {
    if (count > 0)
    {
      said.append(buffer, static_cast<size_t>(count));
    }
    else if (errno != EINTR)
    {
      break;
    }
  }
  close(ends[0]);
  int status = 0;
  while (failed == 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
  {
  }
  TheEnding().child = 0;
  if (failed == 0 && !(WIFEXITED(status) && WEXITSTATUS(status) == 0))
  {
    throw imagefile::Unsound(said.empty() ? "its reader does not come to an end over it; it is damaged, or no transform"
                                          : said);
  }
#else
  static_cast<void>(path);
#endif
}

#ifdef __linux__
// The child process of TryTransform: reads within limits and prints what is wrong to standard output.
int
ReadForAnother(const std::string & path)
{
  std::error_code unknown;
  const auto      size = static_cast<double>(fs::file_size(path, unknown));
  const auto      limit = [](int what, double most) {
    const struct rlimit set = { static_cast<rlim_t>(most), RLIM_INFINITY };
    setrlimit(static_cast<__rlimit_resource_t>(what), &set);
  };
  std::ifstream statm("/proc/self/statm"); // counts of pages; the sixth is data and stack
  double        pages = 0;
  for (int i = 0; i < 6; ++i)
  {
    statm >> pages;
  }
  mallopt(M_ARENA_MAX, 1); // memory that threads reserve would count against the limit
  itk::MultiThreaderBase::SetGlobalDefaultNumberOfThreads(1);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_CPU, 8 + size / 1e7);
  // RLIMIT_DATA, not RLIMIT_AS: Go reserves more address space than it uses.
  limit(RLIMIT_DATA, pages * static_cast<double>(sysconf(_SC_PAGESIZE)) + (1 << 29) + 8 * 1032 * size);
  try
  {
    auto reader = itk::TransformFileReaderTemplate<double>::New();
    reader->SetFileName(path);
    reader->Update();
    return 0;
  }
  catch (const itk::ExceptionObject & error)
  {
    std::cout << Reason(error);
  }
  catch (const std::exception & error)
  {
    std::cout << "it claims more than it can hold";
  }
  std::cout.flush();
  return 3;
}
#endif

FilterType::InitialTransformType::ConstPointer
ReadTransform(const std::string & path)
{
  try
  {
    imagefile::RequireRegular(path);
    TryTransform(path);
    auto reader = itk::TransformFileReaderTemplate<double>::New();
    reader->SetFileName(path);
    reader->Update();
    const auto & transforms = *reader->GetTransformList(); // a composite counts as one
    if (transforms.size() > 1)                             // ITK does not say in which order they would apply
    {
      throw Failure{ MS_ERR_INPUT_UNREADABLE, "initial transform: " + path + " holds " +
                                                std::to_string(transforms.size()) +
                                                " transforms; give one, or a composite" };
    }
    if (!transforms.empty())
    {
      if (auto * transform = dynamic_cast<FilterType::InitialTransformType *>(transforms.front().GetPointer()))
      {
        return transform;
      }
    }
  }
  catch (const imagefile::Unsound & error)
  {
    throw Failure{ MS_ERR_INPUT_UNREADABLE, "initial transform: " + path + " cannot be read: " + error.what() };
  }
  catch (const itk::ExceptionObject & error)
  {
    throw Failure{ MS_ERR_INPUT_UNREADABLE, "initial transform: " + path + " cannot be read: " + Reason(error) };
  }
  catch (const std::exception & error)
  {
    throw Failure{ MS_ERR_INPUT_UNREADABLE, "initial transform: " + path + " cannot be read: " + error.what() };
  }
  throw Failure{ MS_ERR_INPUT_UNREADABLE, "initial transform: " + path + " holds no 3-D transform" };
}

// ----------------------------------------------------------------------------------------------------------------- Outputs

// Paths in use, each with its role in the command.
using Roles = std::map<fs::path, std::string>;

// The one form of a path, however it is written.
fs::path
Canonical(const fs::path & path)
{
  std::error_code unreadable; // an error is reported when the file is read or written
  const fs::path  absolute = fs::absolute(path), resolved = fs::weakly_canonical(absolute, unreadable);
  return unreadable ? absolute.lexically_normal() : resolved;
}

// The files with the voxels that the text header of a MetaImage or NRRD names: one file; a pattern with the first and last number and
// an optional step; or a list with one file a line.
std::vector<fs::path>
DataFiles(const fs::path & header)
{
  static const std::regex named(R"((?:ElementDataFile\s*[=:]|data ?file:)\s*(.*\S)\s*)", std::regex::icase);
  static const std::regex listed(R"(LIST(\s+\d+)?)"),
    numbered(R"(([^%]*)%(0?)(\d{0,3})d(\S*)\s+(-?\d{1,9})\s+(-?\d{1,9})(?:\s+(-?\d{1,9}))?(?:\s+\d+)?)");
  std::string   text(1 << 20, '\0'); // only the start: in some files voxels follow the header
  std::ifstream file(header, std::ios::binary);
  file.read(&text[0], static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  std::istringstream    lines(text);
  std::vector<fs::path> files;
  std::smatch           match;
  bool                  list = false;
  for (std::string line; std::getline(lines, line);)
  {
    line.erase(line.find_last_not_of(" \t\r") + 1);
    if (list && !line.empty())
    {
      files.push_back(header.parent_path() / line.substr(line.find_first_not_of(" \t")));
    }
    if (list || line.size() > 4096 || !std::regex_match(line, match, named)) // 4096: no path is longer
    {
      continue;
    }
    const std::string value = match[1];
    if (std::regex_match(value, listed))
    {
      list = true;
      continue;
    }
    if (std::regex_match(value, match, numbered))
    {
      const int first = std::stoi(match[5]), last = std::stoi(match[6]),
                given = match[7].length() > 0 ? std::stoi(match[7]) : 1;
      const int step = given == 0 ? 1 : given;
      for (int number = first; step > 0 ? number <= last : number >= last; number += step)
      {
        std::ostringstream name;
        name << match[1] << std::setfill(match[2].length() > 0 ? '0' : ' ') << std::internal;
        name << std::setw(match[3].length() > 0 ? std::stoi(match[3]) : 0) << number << match[4];
        if (!fs::exists(header.parent_path() / name.str())) // ITK reads nothing if one is missing
        {
          break;
        }
        files.push_back(header.parent_path() / name.str());
      }
    }
    else
    {
      files.push_back(header.parent_path() / value);
    }
    break;
  }
  return files;
}

// The other files of an image that is stored as a header and its voxels.
std::vector<fs::path>
Companions(const fs::path & path)
{
  const auto lower = [](std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
  };
  const auto upper = [](std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    return text;
  };
  const std::string name = path.filename().string(), lowerName = lower(name);
  const auto        ends = [&](const std::string & suffix) {
    return name.size() > suffix.size() && lowerName.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0;
  };
  for (const std::string suffix : { ".mhd", ".mha", ".nhdr", ".nrrd" })
  {
    if (ends(suffix))
    {
      return DataFiles(path);
    }
  }
  std::vector<fs::path> files;
  for (const std::vector<std::string> & family :
       { std::vector<std::string>{ ".hdr", ".img", ".hdr.gz", ".img.gz" }, { ".spr", ".sdt" } })
  {
    for (const std::string & suffix : family)
    {
      for (std::size_t i = 0; ends(suffix) && i < family.size(); ++i)
      {
        const std::string stem = name.substr(0, name.size() - suffix.size());
        files.push_back(path.parent_path() / (stem + family[i]));
        files.push_back(path.parent_path() / (stem + upper(family[i])));
      }
    }
  }
  return files;
}

// Refuses an output in the place of an input or of another output, and returns all paths in use. A folder stands for its files, and an
// image in several files for all of them. Second files that an output writes are checked when it is claimed.
Roles
CheckPaths(const Arguments & arguments)
{
  Roles taken;
  for (const std::string name : { "0", "1", "fixed-mask", "moving-mask", "moving-labels", "initial-transform", "model",
                                  "model-directory", "runtime-library" })
  {
    const std::string path = arguments[name];
    const std::string role = name == "0" ? "the fixed image" : name == "1" ? "the moving image" : "--" + name;
    std::error_code   error;
    if (fs::is_regular_file(path, error))
    {
      taken.emplace(Canonical(path), role);
      for (const fs::path & file : Companions(path))
      {
        if (fs::is_regular_file(file, error))
        {
          taken.emplace(Canonical(file), "a part of " + role + " " + path);
        }
      }
    }
    else if (fs::is_directory(path, error))
    {
      for (fs::directory_iterator file(path, error), end; !error && file != end; file.increment(error))
      {
        taken.emplace(Canonical(file->path()), role);
      }
    }
  }
  for (const std::string name :
       { "output-volume", "output-transform", "output-labels", "output-uncertainty", "report", "returnparameterfile" })
  {
    const std::string path = arguments[name];
    if (path.empty())
    {
      continue;
    }
    const auto added = taken.emplace(Canonical(path), "--" + name);
    if (!added.second)
    {
      throw Failure{ MS_ERR_INVALID_ARGUMENT,
                     "--" + name + " " + path + " would overwrite " + added.first->second + "; give another path" };
    }
  }
  return taken;
}

// Writes each output to a hidden folder of its own beside its destination, under its final name, because a header may name its voxel
// file. All are moved when all are complete. The destructor removes what is left.
class Outputs
{
public:
  Outputs(const Arguments & arguments, const Roles & taken)
    : m_Arguments(arguments)
    , m_Taken(taken)
  {}

  ~Outputs()
  {
    const std::lock_guard<std::mutex> alone(TheEnding().lock);
    for (const auto & folder : m_Folders)
    {
      std::error_code ignored;
      fs::remove_all(folder.second, ignored);
    }
  }

  // Claims the path of a flag and calls write to write a small stand-in under a temporary name, so that an output that cannot be written
  // fails before the registration. Does nothing for a flag that was not given.
  void
  Claim(const std::string & flag, const std::function<void(const std::string &)> & write)
  {
    const std::string path = m_Arguments[flag];
    if (path.empty())
    {
      return;
    }
    std::error_code missing;
    const auto      type = fs::status(path, missing).type();
    if (fs::path(path).filename().empty() || type == fs::file_type::directory)
    {
      throw Failure{ MS_ERR_OUTPUT_UNWRITABLE, path + " cannot be written: it is a folder; give a file name" };
    }
    if (fs::exists(fs::file_status(type)) && type != fs::file_type::regular) // a device would be replaced
    {
      throw Failure{ MS_ERR_OUTPUT_UNWRITABLE, path + " cannot be written: it is no regular file; give another path" };
    }
    const fs::path temporary =
      fs::absolute(path).parent_path() / (".morphseek-" + std::to_string(std::random_device{}()));
    std::error_code error;
    {
      const std::lock_guard<std::mutex> alone(TheEnding().lock);
      if (!fs::create_directory(temporary, error))
      {
        throw Failure{ MS_ERR_OUTPUT_UNWRITABLE, path + " cannot be written: " + error.message() };
      }
      TheEnding().folders.insert(temporary);
    }
    fs::permissions(temporary, fs::perms::owner_all, error); // it will hold a patient's voxels
    m_Folders[flag] = temporary;
    this->Write(flag, write);
    for (const auto & file : fs::directory_iterator(temporary))
    {
      fs::remove(file.path());
    }
  }

  bool
  Empty() const
  {
    return m_Folders.empty();
  }

  // Calls write with the temporary name of a flag's claimed path; does nothing for a flag that was not given.
  void
  Write(const std::string & flag, const std::function<void(const std::string &)> & write)
  {
    const std::string path = m_Arguments[flag];
    if (path.empty())
    {
      return;
    }
    const fs::path final = fs::absolute(path), temporary = m_Folders.at(flag);
    std::string    reason;
    try
    {
      write((temporary / final.filename()).string());
    }
    catch (const itk::ExceptionObject & error)
    {
      reason = Reason(error);
    }
    // ITK does not notice that the disk fills up while it writes a compressed NIfTI: a full disk is always a failure.
    std::error_code error;
    const auto      space = fs::space(temporary, error);
    if (!error && space.available < (1 << 16))
    {
      throw Failure{ MS_ERR_DISK_FULL, path + ": the disk is full; free some space or choose another folder" };
    }
    if (!reason.empty() || !fs::exists(temporary / final.filename()))
    {
      throw Failure{ MS_ERR_OUTPUT_UNWRITABLE, path + " cannot be written: " + reason };
    }
    // Some formats write a second file with another name.
    for (const auto & file : fs::directory_iterator(temporary))
    {
      const fs::path name = file.path().filename();
      const bool     second = name != final.filename();
      const auto     added = m_Taken.emplace(Canonical(final.parent_path() / name),
                                             second ? "a part of --" + flag + " " + path : "--" + flag);
      const auto &   role = added.first->second;
      if (role != "--" + flag && role != "a part of --" + flag + " " + path)
      {
        throw Failure{ MS_ERR_INVALID_ARGUMENT, "--" + flag + " " + path +
                                                  (second ? ", which is written with " + name.string() + "," : "") +
                                                  " would overwrite " + role + "; give another path" };
      }
    }
  }

  // Moves all outputs to their destinations.
  void
  Publish()
  {
    const std::lock_guard<std::mutex> alone(TheEnding().lock);
    for (const auto & folder : m_Folders)
    {
      for (const auto & file : fs::directory_iterator(folder.second))
      {
        const fs::path  final = folder.second.parent_path() / file.path().filename();
        std::error_code error;
        fs::rename(file.path(), final, error);
        if (error)
        {
          throw Failure{ MS_ERR_OUTPUT_UNWRITABLE, final.string() + " cannot be written: " + error.message() };
        }
      }
    }
    TheEnding().finished = true;
  }

private:
  const Arguments &               m_Arguments;
  Roles                           m_Taken;
  std::map<std::string, fs::path> m_Folders; // the temporary folder of each claimed flag
};

// Not called WriteImage: argument-dependent lookup would prefer ITK's, which does not compress.
template <typename TImage>
void
WriteVolume(const TImage * image, const std::string & path)
{
  if (!itk::ImageIOFactory::CreateImageIO(path.c_str(), itk::ImageIOFactory::IOFileModeEnum::WriteMode))
  {
    itkGenericExceptionMacro("ITK knows no image format of that name; .nii.gz, .nrrd and .mha are some");
  }
  auto writer = itk::ImageFileWriter<TImage>::New();
  writer->SetInput(image);
  writer->SetFileName(path);
  writer->UseCompressionOn();
  writer->Update();
  // In formats for 2-D pictures ITK silently writes only the first slice of a volume.
  auto io = itk::ImageIOFactory::CreateImageIO(path.c_str(), itk::ImageIOFactory::IOFileModeEnum::ReadMode);
  if (io)
  {
    io->SetFileName(path);
    io->ReadImageInformation();
    if (io->GetNumberOfDimensions() < 3 || io->GetDimensions(2) != image->GetLargestPossibleRegion().GetSize(2))
    {
      itkGenericExceptionMacro("its format holds no volume; .nii.gz, .nrrd and .mha are some that do");
    }
  }
}

// Writes labels with the pixel type that ReadLabels found.
void
WriteLabels(const LabelType * labels, itk::IOComponentEnum component, const std::string & path)
{
  const auto as = [&](auto pixel) {
    using ImageType = itk::Image<decltype(pixel), 3>;
    auto cast = itk::CastImageFilter<LabelType, ImageType>::New();
    cast->SetInput(labels);
    cast->Update();
    WriteVolume<ImageType>(cast->GetOutput(), path);
  };
  switch (component)
  {
    case itk::IOComponentEnum::UCHAR:
      return as(static_cast<unsigned char>(0));
    case itk::IOComponentEnum::SHORT:
      return as(static_cast<short>(0));
    case itk::IOComponentEnum::USHORT:
      return as(static_cast<unsigned short>(0));
    case itk::IOComponentEnum::UINT:
      return as(0u);
    case itk::IOComponentEnum::LONGLONG:
      return as(0ll);
    default:
      return as(0);
  }
}

void
WriteTransform(const FilterType::TransformType * transform, const std::string & path)
{
  const std::string suffix = fs::path(path).extension().string();
  if (suffix == ".h5" || suffix == ".hdf5" || suffix == ".tfm" || suffix == ".txt" || suffix == ".mat")
  {
    auto writer = itk::TransformFileWriterTemplate<FilterType::ComponentType>::New();
    writer->SetInput(transform);
    writer->SetFileName(path);
    writer->UseCompressionOn();
    writer->Update();
    return;
  }
  WriteVolume(transform->GetDisplacementField(), path);
}

void
WriteText(const std::string & text, const std::string & path)
{
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush())
  {
    itkGenericExceptionMacro("the file cannot be written");
  }
}

// A small image, to test whether a format can be written (JPEG 2000 in DICOM needs at least this size).
template <typename TImage>
typename TImage::Pointer
StandIn()
{
  auto image = TImage::New();
  image->SetRegions(itk::Size<3>{ { 32, 32, 32 } });
  image->Allocate(true);
  return image;
}

// --------------------------------------------------------------------------------------------------------- The registration

// Tells the host about a filter's progress, in the XML of the Slicer Execution Model.
class Narrator : public itk::Command
{
public:
  using Self = Narrator;
  using Pointer = itk::SmartPointer<Self>;
  itkNewMacro(Self);

  void
  Execute(itk::Object * caller, const itk::EventObject & event) override
  {
    auto * filter = static_cast<itk::ProcessObject *>(caller);
    if (itk::StartEvent().CheckEvent(&event))
    {
      m_Start = std::chrono::steady_clock::now();
      std::cout << "<filter-start>\n <filter-name>MorphSeekRegistration</filter-name>\n <filter-comment>Registers the "
                   "volumes</filter-comment>\n</filter-start>"
                << std::endl;
    }
    else if (itk::ProgressEvent().CheckEvent(&event))
    {
      if (filter->GetProgress() > m_Told)
      {
        m_Told = filter->GetProgress();
        std::cout << "<filter-progress>" << m_Told << "</filter-progress>" << std::endl;
      }
    }
    else if (itk::EndEvent().CheckEvent(&event))
    {
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - m_Start;
      std::cout << "<filter-end>\n <filter-name>MorphSeekRegistration</filter-name>\n <filter-time>" << seconds.count()
                << "</filter-time>\n</filter-end>" << std::endl;
    }
  }

  void
  Execute(const itk::Object *, const itk::EventObject &) override
  {}

private:
  std::chrono::steady_clock::time_point m_Start;
  float                                 m_Told{ 0 };
};

void
SetOptions(const Arguments & arguments, FilterType * filter)
{
#define MORPHSEEK_TAKE(Name, member, Type) \
  arguments.Option<Type>(#member, [&](const Type & v) { filter->Set##Name(v); });
  MORPHSEEK_OPTIONS(MORPHSEEK_TAKE)
#undef MORPHSEEK_TAKE
  arguments.Text("output-uncertainty", [&](const std::string &) { filter->SetUncertainty("on"); });
  arguments.Text("runtime-library", [&](const std::string & v) { filter->SetRuntimeLibrary(v); });
  arguments.Text("model-directory", [&](const std::string & v) { filter->SetModelDirectory(v); });
  arguments.Number<int>("threads", [](int v) {
    if (v < 0)
    {
      throw Failure{ MS_ERR_INVALID_ARGUMENT, "--threads is negative; 0 uses every core" };
    }
    if (v > 0)
    {
      itk::MultiThreaderBase::SetGlobalDefaultNumberOfThreads(v);
      itk::MultiThreaderBase::SetGlobalMaximumNumberOfThreads(v);
    }
  });
}

// The text that a host reads back: one line for each output parameter of the XML.
std::string
ReturnParameters(const FilterType & filter)
{
  std::string reasons;
  for (const std::string & reason : filter.GetVerdictReasons())
  {
    reasons += (reasons.empty() ? "" : " ") + reason;
  }
  return "foldingPercentage = " + std::to_string(filter.GetFoldingPercentage()) + "\nverdict = " + filter.GetVerdict() +
         "\nverdictReasons = " + reasons + "\nestimatedError = " + std::to_string(filter.GetEstimatedError()) + "\n";
}

void
Register(const Arguments & arguments)
{
  if (arguments["moving-labels"].empty() != arguments["output-labels"].empty())
  {
    throw Failure{ MS_ERR_INVALID_ARGUMENT,
                   "--moving-labels and --output-labels belong together; give both or neither" };
  }
  Outputs outputs(arguments, CheckPaths(arguments));

  auto moving = ReadVolume<VolumeType>(arguments["1"], "moving");
  SetOptions(arguments, FilterType::New()); // checks the values, and sets the thread count before the real filter
  auto filter = FilterType::New();
  SetOptions(arguments, filter);
  filter->SetFixedImage(ReadVolume<VolumeType>(arguments["0"], "fixed"));
  filter->SetMovingImage(moving);
  arguments.Text("fixed-mask", [&](const std::string & path) { filter->SetFixedMask(ReadMask(path, "fixed mask")); });
  arguments.Text("moving-mask",
                 [&](const std::string & path) { filter->SetMovingMask(ReadMask(path, "moving mask")); });
  arguments.Text("rigid", [&](const std::string & path) {
    filter->SetRigidRegions(ReadVolume<FilterType::RegionsImageType>(path, "rigid regions"));
  });
  arguments.Text("initial-transform",
                 [&](const std::string & path) { filter->SetInitialTransform(ReadTransform(path)); });
  LabelType::Pointer   labels;
  itk::IOComponentEnum labelComponent{};
  arguments.Text("moving-labels",
                 [&](const std::string & path) { labels = ReadLabels(path, "moving labels", labelComponent); });

  const auto claimImage = [](const std::string & path) { WriteVolume(StandIn<VolumeType>().GetPointer(), path); };
  const auto claimText = [](const std::string & path) { WriteText("", path); };
  outputs.Claim("output-volume", claimImage);
  outputs.Claim("output-labels",
                [&](const std::string & path) { WriteLabels(StandIn<LabelType>(), labelComponent, path); });
  outputs.Claim("output-uncertainty", claimImage);
  outputs.Claim("output-transform", [](const std::string & path) {
    auto transform = FilterType::TransformType::New();
    transform->SetDisplacementField(StandIn<FilterType::TransformType::DisplacementFieldType>());
    WriteTransform(transform, path);
  });
  outputs.Claim("report", claimText);
  outputs.Claim("returnparameterfile", claimText);
  if (outputs.Empty())
  {
    throw Failure{ MS_ERR_INVALID_ARGUMENT,
                   "nothing is to be written; give --output-volume, --output-transform or another output, see --help" };
  }

  filter->AddObserver(itk::AnyEvent(), Narrator::New());
  filter->Update();

  outputs.Write("output-volume", [&](const std::string & path) {
    auto warp = itk::MorphSeekWarpFilter<VolumeType>::New();
    warp->SetInput(moving);
    warp->SetTransform(filter->GetTransform());
    warp->SetReferenceImage(filter->GetOutput());
    warp->Update();
    WriteVolume(warp->GetOutput(), path);
  });
  outputs.Write("output-labels", [&](const std::string & path) {
    auto warp = itk::MorphSeekWarpFilter<LabelType>::New();
    warp->SetInput(labels);
    warp->SetTransform(filter->GetTransform());
    warp->SetReferenceImage(filter->GetOutput());
    warp->LabelsOn();
    warp->Update();
    WriteLabels(warp->GetOutput(), labelComponent, path);
  });
  outputs.Write("output-uncertainty",
                [&](const std::string & path) { WriteVolume(filter->GetUncertaintyImage(), path); });
  outputs.Write("output-transform", [&](const std::string & path) { WriteTransform(filter->GetTransform(), path); });
  outputs.Write("report", [&](const std::string & path) { WriteText(filter->GetMetrics() + "\n", path); });
  outputs.Write("returnparameterfile", [&](const std::string & path) { WriteText(ReturnParameters(*filter), path); });
  outputs.Publish();
}

// The exit code of a status code, from the engine's table.
int
ExitCode(ms_status code)
{
  size_t needed = 0;
  ms_errors_json(nullptr, 0, &needed);
  std::string table(needed, '\0');
  ms_errors_json(&table[0], needed, nullptr);
  const std::string exit = "\"exit\":";
  size_t            at = table.find("\"code\":" + std::to_string(code) + ",");
  at = at == std::string::npos ? at : table.find(exit, at);
  return at == std::string::npos ? 1 : std::atoi(table.c_str() + at + exit.size());
}

int
Fail(ms_status code, const std::string & message)
{
  const std::lock_guard<std::mutex> alone(TheEnding().lock); // after a signal this never returns
  std::cerr << "MorphSeekRegistration: " << message << std::endl;
  return ExitCode(code);
}
} // namespace

int
main(int argc, char ** argv)
{
  for (int i = 1; i < argc; ++i)
  {
    const std::string argument = argv[i];
    if (argument == "--xml")
    {
      std::cout << xml;
      return 0;
    }
    if (argument == "--help" || argument == "-h")
    {
      PrintHelp();
      return 0;
    }
    if (argument == "--version")
    {
      std::cout << "MorphSeekRegistration " << ms_version() << '\n';
      return 0;
    }
  }
#ifdef __linux__
  if (argc == 3 && std::string(argv[1]) == tryTransform)
  {
    const int code = ReadForAnother(argv[2]);
    std::_Exit(code); // no destructors: a damaged file may have corrupted the memory
  }
#endif
  StopOnSignals();
  try
  {
    Register(Arguments(argc, argv));
    return 0;
  }
  catch (const Failure & failure)
  {
    return Fail(failure.code, failure.message);
  }
  catch (const itk::MorphSeekException & error)
  {
    return Fail(error.GetCode(), error.GetDescription());
  }
  catch (const std::bad_alloc &)
  {
    return Fail(MS_ERR_OUT_OF_MEMORY, "there is too little memory; close other programs or give smaller images");
  }
  catch (const std::exception & error)
  {
    return Fail(MS_ERR_INTERNAL, error.what());
  }
}
