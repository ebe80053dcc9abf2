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
#include "itkMorphSeekNiftiDoubts.h"
#include "itkMorphSeekRegistrationFilter.h"
#include "itkMorphSeekWarpFilter.h"
#include "itkTransformFileReader.h"
#include "itkTransformFileWriter.h"

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
#  include <sys/prctl.h>
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

// A failure with its status code and a sentence for the user.
struct Failure
{
  ms_status   code;
  std::string message;
};

[[noreturn]] void
Refuse(const std::string & message)
{
  throw Failure{ MS_ERR_INPUT_UNREADABLE, message };
}

// The description of an ITK exception without the object, its address, and an error number of another call.
std::string
Reason(const itk::ExceptionObject & error)
{
  static const std::regex object(
    R"((ITK ERROR: |itk::ERROR: )(\w{1,80}\(0x[0-9a-f]+\): )?|\w{1,80}\(0x[0-9a-f]+\): |\s+Reason: No such file or directory)");
  return std::regex_replace(std::string(error.GetDescription()).substr(0, 4096), object, "");
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

// -------------------------------------------------------------------------------------------------------- A child process

#ifdef __linux__
void
SetLimit(int what, double most)
{
  const struct rlimit set = { static_cast<rlim_t>(most), RLIM_INFINITY };
  setrlimit(static_cast<__rlimit_resource_t>(what), &set);
}

// Keeps a child process within what files of some bytes may take, silent, and no longer alive than its parent.
void
Confine(double bytes)
{
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (int number = 1; number < NSIG; ++number)
  {
    struct sigaction action = {};
    if (sigaction(number, nullptr, &action) == 0 && action.sa_handler != SIG_IGN)
    {
      std::signal(number, SIG_DFL); // Go's handlers need its threads, which are not here
    }
  }
  const int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC); // the libraries below ITK print
  dup2(nothing, 1);
  dup2(nothing, 2);
  std::ifstream statm("/proc/self/statm"); // counts of pages; the sixth is data and stack
  double        pages = 0;
  for (int i = 0; i < 6; ++i)
  {
    statm >> pages;
  }
  mallopt(M_ARENA_MAX, 1); // memory that threads reserve would count against the limit
  itk::MultiThreaderBase::SetGlobalDefaultNumberOfThreads(1);
  SetLimit(RLIMIT_CORE, 0);
  SetLimit(RLIMIT_CPU, 3 + bytes / 1e6);
  // RLIMIT_DATA, not RLIMIT_AS: Go reserves more address space than it uses. Deflate makes at most 1032 bytes of one.
  SetLimit(RLIMIT_DATA, pages * static_cast<double>(sysconf(_SC_PAGESIZE)) + (1 << 28) + 8 * 1032 * bytes);
}

// Lets a child process work on a file, and take read what it wrote: on damaged files ITK's readers abort the process,
// never return, or allocate whatever the file claims. start begins the message about a child that fails so.
template <typename TWork, typename TTake>
void
Apart(const std::string & start, const fs::path & path, const TWork & work, const TTake & take)
{
  double          bytes = 0;
  std::error_code unknown;
  const auto      add = [&](const fs::path & file) {
    const auto size = fs::file_size(file, unknown);
    bytes += 1e4 + (unknown ? 0 : static_cast<double>(size)); // an empty file takes time, too
  };
  for (const fs::path & file : imagefile::Parts(path))
  {
    add(file);
  }
  for (fs::directory_iterator file(path, unknown), end; !unknown && file != end; file.increment(unknown))
  {
    add(file->path());
  }
  int         ends[2] = {};
  const pid_t child = pipe2(ends, O_CLOEXEC) == 0 ? fork() : -1;
  if (child < 0)
  {
    throw Failure{ MS_ERR_OUT_OF_MEMORY, start + "no further process can be started; close other programs" };
  }
  std::FILE * const out = fdopen(ends[1], "wb");
  if (child == 0)
  {
    close(ends[0]);
    Confine(bytes);
    Failure failure{ MS_OK, "" };
    try
    {
      work(out, bytes);
    }
    catch (const Failure & said)
    {
      failure = said;
    }
    catch (const std::bad_alloc &)
    {
      failure = { MS_ERR_INPUT_UNREADABLE, start + "its header claims more than it can hold; copy it again" };
    }
    catch (const std::exception & error)
    {
      failure = { MS_ERR_INPUT_UNREADABLE, start + error.what() };
    }
    std::fwrite(&failure.code, sizeof failure.code, failure.code != MS_OK, out);
    std::fwrite(failure.message.data(), 1, failure.message.size(), out);
    std::fflush(out);
    std::_Exit(0); // no destructors: a damaged file may have corrupted the memory
  }
  std::fclose(out);
  std::FILE * const in = fdopen(ends[0], "rb");
  Failure           failure{ MS_OK, "" };
  const bool        isWhole =
    std::fread(&failure.code, sizeof failure.code, 1, in) == 1 && (failure.code != MS_OK || take(in));
  for (int c = 0; failure.code != MS_OK && (c = std::fgetc(in)) != EOF;)
  {
    failure.message += static_cast<char>(c);
  }
  std::fclose(in);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR)
  {
  }
  if (failure.code != MS_OK)
  {
    throw failure;
  }
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
  {
    throw Failure{ MS_ERR_OUT_OF_MEMORY, start + "the system ended its reader; close other programs" };
  }
  if (!isWhole)
  {
    Refuse(start + "its reader does not come to an end over it; it is damaged, or of another kind");
  }
}
#endif

// ------------------------------------------------------------------------------------------------------------------ Inputs

using Doubts = std::vector<std::string>; // sentences about headers that contradict themselves

// An image with what its file says beside it.
template <typename TImage>
struct Volume
{
  typename TImage::Pointer image;
  itk::IOComponentEnum     component{};      // on disk
  bool                     isScaled = false; // whole numbers, as float
  Doubts                   doubts;
};

// A number of millimetres for a message, with a digit behind the point.
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

// A slice of a DICOM series, or a DICOM file alone.
class Slice
{
public:
  Slice(const itk::MetaDataDictionary & elements, const fs::path & file)
    : file(file)
    , m_Elements(elements)
  {
    position = this->Numbers("0020|0032", 3);
    cosines = this->Numbers("0020|0037", 6);
    pixel = this->Pixel("0028|0030");
    const auto dot = [&](size_t a, size_t b) {
      return cosines[a] * cosines[b] + cosines[a + 1] * cosines[b + 1] + cosines[a + 2] * cosines[b + 2];
    };
    if (!cosines.empty() && // cosines of two digits lean by so little
        std::max({ std::abs(dot(0, 0) - 1), std::abs(dot(3, 3) - 1), std::abs(dot(0, 3)) }) > 0.02)
    {
      cosines.clear();
    }
  }

  std::string
  Text(const std::string & tag) const
  {
    std::string text;
    itk::ExposeMetaData(m_Elements, tag, text);
    text.erase(std::find(text.begin(), text.end(), '\0'), text.end());
    return imagefile::Trim(text);
  }

  // The numbers of an element; none where it has others.
  std::vector<double>
  Numbers(const std::string & tag, size_t count) const
  {
    std::string text = this->Text(tag);
    std::replace(text.begin(), text.end(), '\\', ' ');
    std::istringstream  stream(text);
    std::vector<double> numbers;
    for (double number = 0; stream >> number;)
    {
      numbers.push_back(number);
    }
    return stream.eof() && numbers.size() == count ? numbers : std::vector<double>();
  }

  // The size of a row and of a column; nothing where it is not sound.
  std::vector<double>
  Pixel(const std::string & tag) const
  {
    const auto sizes = this->Numbers(tag, 2);
    return !sizes.empty() && std::min(sizes[0], sizes[1]) > 0 ? sizes : std::vector<double>();
  }

  // Says what makes it no slice that GDCM reads rightly, and what to do; nothing of others.
  std::string
  Refusal() const
  {
    // enhanced MR, CT and PET, those converted from others, and X-ray
    static const std::set<std::string> inSequences = { "2.1",    "2.2",    "4.1",   "4.3", "4.4",
                                                       "13.1.1", "13.1.3", "128.1", "130" };
    static const std::string           storage = "1.2.840.10008.5.1.4.1.1.";
    const std::string                  kind = this->Text("0008|0016"), frames = this->Text("0028|0008");
    const std::string                  nifti = "; convert it to NIfTI first, for instance by dcm2niix";
    const bool                         isEnhanced =
      kind.compare(0, storage.size(), storage) == 0 && inSequences.count(kind.substr(storage.size())) != 0;
    if (std::atoi(frames.c_str()) > 1 || isEnhanced)
    {
      return "has " + (frames.empty() ? "1" : frames) +
             " frames, whose places in its sequences this program does not read" + nifti;
    }
    if (this->IsMosaic())
    {
      return "is a mosaic, the slices of a volume as the tiles of one picture" + nifti;
    }
    if (std::atoi(this->Text("0028|0002").c_str()) > 1)
    {
      return "is a picture in colours, " + this->Text("0028|0002") + " numbers a pixel; give a scalar image";
    }
    const std::string photometric = this->Text("0028|0004");
    if (photometric.compare(0, 7, "PALETTE") == 0)
    {
      return "is a picture in colours, those of a palette; give a scalar image";
    }
    if (photometric == "MONOCHROME1")
    {
      return "is of MONOCHROME1, which this program would invert" + nifti;
    }
    const std::string content = imagefile::Content(file);
    if (imagefile::HasModalityTable(content))
    {
      return "has a modality LUT, which this program does not apply" + nifti;
    }
    if (const int stored = std::atoi(this->Text("0028|0101").c_str());
        stored > 0 && std::atoi(this->Text("0028|0102").c_str()) != stored - 1)
    {
      return "has its values in other bits than the lowest" + nifti;
    }
    if (this->Text("0028|0100") == "1" || kind == storage + "481.2")
    {
      return "has values that this program does not read, of one bit or a dose" + nifti;
    }
    const auto size = [this](const char * tag) { return std::max(1.0, std::atof(this->Text(tag).c_str())); };
    if (!imagefile::HasPixels(content, size("0028|0010") * size("0028|0011") * size("0028|0100") / 8))
    {
      return "cannot be read as DICOM: it is cut short or damaged; copy it again";
    }
    return "";
  }

  fs::path            file;
  std::vector<double> position, cosines, pixel; // empty where there are no sound ones

private:
  // Whether its kind says so, or the number of tiles among the private elements of Siemens or UIH.
  bool
  IsMosaic() const
  {
    static const std::set<std::string> one = { "", "0", "1", "AQA=", "AAA=", "AQ==" }; // bytes are in base 64
    const auto                         has = [this](const char * creator, const char * name, const char * tiles) {
      return this->Text(creator) == name && one.count(this->Text(tiles)) == 0;
    };
    return ("\\" + this->Text("0008|0008") + "\\").find("\\MOSAIC\\") != std::string::npos ||
           has("0019|0010", "SIEMENS MR HEADER", "0019|100a") || has("0065|0010", "Image Private Header", "0065|1050");
  }

  const itk::MetaDataDictionary & m_Elements;
};

// Gives a DICOM file alone the size of pixels that it says: GDCM takes another one of some kinds.
void
PlaceLone(const Slice & slice, itk::ImageBase<3> & image, const std::string & start, Doubts & doubts)
{
  std::string doubt;
  auto        pixel = slice.pixel;
  for (const std::string key : { "0018|1164 ImagerPixelSpacing", "0018|2010 NominalScannedPixelSpacing" })
  {
    if (pixel.empty() && !(pixel = slice.Pixel(key.substr(0, 9))).empty())
    {
      doubt = "it has no PixelSpacing: " + key.substr(10) + ", which nobody measured in the patient, is taken";
    }
  }
  if (pixel.empty())
  {
    pixel = { 1, 1 };
    doubt = "it does not say how large its pixels are: 1 mm is taken";
  }
  auto spacing = image.GetSpacing();
  spacing[0] = pixel[1];
  spacing[1] = pixel[0];
  image.SetSpacing(spacing);
  if (!doubt.empty())
  {
    doubts.push_back(start + ": " + doubt + ".");
  }
  static const std::set<std::string> tomography = { "CT", "MR", "PT", "NM" };
  if ((slice.position.empty() || slice.cosines.empty()) && tomography.count(slice.Text("0008|0060")) != 0)
  {
    doubts.push_back(start + ": it does not say where its slice lies: the patient's axes and 0 are taken.");
  }
}

// Checks that every slice of a series lies where its header says: ITK assumes a straight, even stack, and takes the order
// of the files where there are no positions.
void
CheckStack(const std::vector<Slice> & slices,
           const itk::ImageBase<3> &  image,
           const std::string &        folder,
           const std::string &        name,
           Doubts &                   doubts)
{
  const auto                      refuse = [&](const std::string & text) { Refuse(name + ": " + text); };
  const std::string               apart = "; give one volume, the others in folders of their own";
  std::map<std::string, fs::path> instances;
  for (const Slice & slice : slices)
  {
    if (slice.position.empty() || slice.cosines.empty() || slice.pixel.empty())
    {
      refuse(
        slice.file.string() + " has no sound " +
        (slice.position.empty()  ? "ImagePositionPatient"
         : slice.cosines.empty() ? "ImageOrientationPatient"
                                 : "PixelSpacing") +
        ", so that nobody knows where its slice lies; give the series as the scanner wrote it, or convert it to NIfTI"
        " with its geometry");
    }
    const auto same = instances.emplace(slice.Text("0008|0018"), slice.file.filename());
    if (!same.second && !same.first->first.empty())
    {
      refuse(folder + " holds an image twice (" + same.first->second.string() + " and " +
             slice.file.filename().string() + " are the same); remove the copies");
    }
    double turn = 0, scale = 0;
    for (size_t i = 0; i < 6; ++i)
    {
      turn = std::max(turn, std::abs(slice.cosines[i] - slices[0].cosines[i]));
    }
    for (unsigned int i = 0; i < 2; ++i)
    {
      scale = std::max(scale, std::abs(std::log(slice.pixel[1 - i] / image.GetSpacing()[i])));
    }
    if (turn > 5e-3 || scale > 0.02)
    {
      refuse("the slices in " + folder + " are not alike: " + slice.file.filename().string() +
             (turn > 5e-3 ? " is turned otherwise (a localizer?)" : " is of another pixel size") + apart);
    }
  }
  std::vector<itk::Vector<double, 3>> corners;
  std::vector<double>                 depths, gaps;
  for (const Slice & slice : slices)
  {
    corners.emplace_back(slice.position.data());
    depths.push_back(0);
    for (unsigned int row = 0; row < 3; ++row)
    {
      depths.back() += corners.back()[row] * image.GetDirection()[row][2];
    }
    if (depths.size() > 1)
    {
      gaps.push_back(depths.back() - depths[depths.size() - 2]);
    }
  }
  const double near = 0.02 * std::min(image.GetSpacing()[0], image.GetSpacing()[1]);
  std::sort(depths.begin(), depths.end());
  if (depths.back() - depths.front() < near)
  {
    refuse(std::to_string(corners.size()) + " slices in " + folder +
           " are all at one position; give one volume, each slice at its own place");
  }
  if (std::adjacent_find(depths.begin(), depths.end(), [&](double a, double b) { return b - a < near; }) !=
      depths.end())
  {
    refuse("the slices in " + folder + " lie at one place more than once" + apart);
  }
  std::sort(gaps.begin(), gaps.end());
  const double step = std::abs((gaps[(gaps.size() - 1) / 2] + gaps[gaps.size() / 2]) / 2);
  if (gaps.back() - gaps.front() > 0.1 * step)
  {
    refuse("the slices in " + folder + " are " + Tenths(gaps.front()) + " to " + Tenths(gaps.back()) +
           " mm apart; complete the series, or resample it evenly");
  }
  double off = 0, wrong = step;
  for (std::size_t i = 0; i < corners.size(); ++i)
  {
    itk::Point<double, 3> point;
    image.TransformIndexToPhysicalPoint(itk::Index<3>{ { 0, 0, static_cast<itk::IndexValueType>(i) } }, point);
    off = std::max(off, (corners[i] - point.GetVectorFromOrigin()).GetNorm());
    const auto said = slices[i].Numbers("0018|0088", 1);
    wrong = !said.empty() && std::abs(std::abs(said[0]) - step) > std::abs(wrong - step) ? std::abs(said[0]) : wrong;
  }
  // direction cosines may have only three digits, hence the 0.005
  if (off > 0.1 * step + 0.005 * step * static_cast<double>(corners.size()))
  {
    refuse("the slices in " + folder + " are no straight stack (a tilted gantry?): read as one, some would be " +
           Tenths(off) + " mm off; resample the series first, for instance by dcm2niix");
  }
  if (std::abs(wrong - step) > 0.02 * step)
  {
    std::ostringstream doubt;
    doubt << std::setprecision(4) << name << ": " << folder << ": its slices lie " << step
          << " mm apart, and its SpacingBetweenSlices is " << wrong << " mm: their positions are taken.";
    doubts.push_back(doubt.str());
  }
}

// Reads the one DICOM series in a folder.
template <typename TImage>
void
ReadSeries(const std::string & path, const std::string & name, Volume<TImage> & volume)
{
  size_t count = 0;
  for (const auto & entry : fs::directory_iterator(path)) // GDCM opens every file of the folder
  {
    imagefile::RequireRegular(entry.path());
    if (++count > 20000) // a series has a few thousand
    {
      Refuse(name + ": the folder " + path +
             " holds more than 20000 files; give a folder with the slices of one series");
    }
  }
  auto names = itk::GDCMSeriesFileNames::New();
  names->SetDirectory(path);
  const auto & series = names->GetSeriesUIDs();
  if (series.size() != 1)
  {
    Refuse(name + ": the folder " + path + " holds " + std::to_string(series.size()) +
           " DICOM series; give a folder with one, or a file");
  }
  auto io = itk::GDCMImageIO::New();
  io->LoadPrivateTagsOn();
  auto reader = itk::ImageSeriesReader<TImage>::New();
  reader->SetImageIO(io);
  reader->SetFileNames(names->GetFileNames(series.front()));
  reader->Update();
  volume.image = reader->GetOutput();
  volume.component = io->GetComponentType();
  std::vector<Slice> slices;
  for (const auto * elements : *reader->GetMetaDataDictionaryArray())
  {
    slices.emplace_back(*elements, reader->GetFileNames().at(slices.size()));
    if (const std::string refusal = slices.back().Refusal(); !refusal.empty())
    {
      Refuse(name + ": " + slices.back().file.string() + " " + refusal);
    }
  }
  if (slices.size() == 1)
  {
    PlaceLone(slices[0], *volume.image, name + ": " + path, volume.doubts);
    return;
  }
  CheckStack(slices, *volume.image, path, name, volume.doubts);
}

// Reads an image in this process. raise is called with the bytes that the image claims.
template <typename TImage>
Volume<TImage>
ReadHere(const std::string & path, const std::string & name, const std::function<void(double)> & raise)
{
  const auto     refuse = [&](const std::string & text) { Refuse(name + ": " + path + text); };
  Volume<TImage> volume;
  try
  {
    imagefile::RequireRegular(path);
    if (fs::is_directory(path))
    {
      ReadSeries(path, name, volume);
      return volume;
    }
    const auto header = imagefile::ReadHeader(path);
    imagefile::CheckHeader(path, header);
    auto io = itk::ImageIOFactory::CreateImageIO(path.c_str(), itk::ImageIOFactory::IOFileModeEnum::ReadMode);
    if (!io)
    {
      refuse(" is in no image format that ITK reads");
    }
    const bool isAnalyze = imagefile::IsAnalyze(path);
    if (isAnalyze || std::string(io->GetNameOfClass()) == "MINCImageIO")
    {
      refuse(std::string(" is a file of ") + (isAnalyze ? "Analyze" : "MINC") +
             ", which this program would lay elsewhere than other programs; convert it to NIfTI first");
    }
    auto * gdcm = dynamic_cast<itk::GDCMImageIO *>(io.GetPointer());
    if (gdcm)
    {
      gdcm->LoadPrivateTagsOn();
    }
    io->SetFileName(path);
    io->ReadImageInformation();
    const auto & elements = io->GetMetaDataDictionary();
    if (gdcm)
    {
      if (const std::string refusal = Slice(elements, path).Refusal(); !refusal.empty())
      {
        refuse(" " + refusal);
      }
    }
    std::string bits, stored; // bits per stored number; with a slope, ITK reports the size of a float instead
    const auto  count = static_cast<double>(io->GetImageSizeInComponents());
    const auto  bytes = itk::ExposeMetaData(elements, "bitpix", bits) ? count * std::atof(bits.c_str()) / 8
                                                                      : static_cast<double>(io->GetImageSizeInBytes());
    if (count == 0)
    {
      refuse(" cannot be read as an image: it has no voxels");
    }
    raise(bytes);
    imagefile::CheckVoxels(path, header, count, bytes);
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
        refuse(" holds a series of volumes; give one of them");
      }
    }
    if (io->GetNumberOfComponents() != 1)
    {
      refuse(" has " + std::to_string(io->GetNumberOfComponents()) + " components a voxel; give a scalar volume");
    }
    volume.component = io->GetComponentType();
    // ITK scales whole numbers of a NIfTI (scl_slope, scl_inter) in float, which rounds beyond 2^24.
    volume.isScaled = volume.component == itk::IOComponentEnum::FLOAT &&
                      itk::ExposeMetaData(elements, "datatype", stored) && stored != "16"; // NIfTI's code of float
    auto reader = itk::ImageFileReader<TImage>::New();
    reader->SetImageIO(io);
    reader->SetFileName(path);
    reader->Update();
    volume.image = reader->GetOutput();
    if (gdcm)
    {
      PlaceLone(Slice(gdcm->GetMetaDataDictionary(), path), *volume.image, name + ": " + path, volume.doubts);
    }
    // other formats keep the fields of a NIfTI of images that were moved since
    if (std::string(io->GetNameOfClass()) == "NiftiImageIO")
    {
      const auto & image = *volume.image;
      volume.doubts = itk::MorphSeekNiftiDoubts(image.GetMetaDataDictionary(), &image, name + ": " + path);
    }
    if (header.LacksSpacing())
    {
      volume.doubts.push_back(name + ": " + path +
                              ": its header does not say how large its voxels are; 1 mm is taken.");
    }
    return volume;
  }
  catch (const itk::MemoryAllocationError &)
  {
    throw std::bad_alloc();
  }
  catch (const imagefile::Unsound & error)
  {
    refuse(std::string(" cannot be read as an image: ") + error.what());
  }
  catch (const itk::ExceptionObject & error)
  {
    refuse(" cannot be read as an image: " + Reason(error) + "; copy it again, or save it anew");
  }
  return volume;
}

#ifdef __linux__
// What goes through the pipe before the sentences and the voxels of an image.
struct Parcel
{
  itk::ImageBase<3>::SizeType      size;
  itk::ImageBase<3>::PointType     origin;
  itk::ImageBase<3>::SpacingType   spacing;
  itk::ImageBase<3>::DirectionType direction;
  itk::IOComponentEnum             component;
  bool                             isScaled;
  size_t                           letters;
};
#endif

// Reads one scalar volume, in a process of its own where there is one, and adds its doubts.
template <typename TImage>
Volume<TImage>
ReadVolume(const std::string & path, const std::string & name, Doubts & doubts)
{
  const std::string start = name + ": " + path;
  if (!fs::exists(path))
  {
    Refuse(start + " does not exist; check the path");
  }
  Volume<TImage> volume;
#ifdef __linux__
  Apart(
    start + " cannot be read as an image: ", path,
    [&](std::FILE * out, double held) {
      const auto read =
        ReadHere<TImage>(path, name, [&](double bytes) { SetLimit(RLIMIT_CPU, 3 + held / 1e6 + bytes / 2e7); });
      const auto & image = *read.image;
      std::string  said;
      for (const std::string & doubt : read.doubts)
      {
        said += doubt + '\0';
      }
      const Parcel    parcel = { image.GetLargestPossibleRegion().GetSize(),
                                 image.GetOrigin(),
                                 image.GetSpacing(),
                                 image.GetDirection(),
                                 read.component,
                                 read.isScaled,
                                 said.size() };
      const ms_status done = MS_OK;
      std::fwrite(&done, sizeof done, 1, out);
      std::fwrite(&parcel, sizeof parcel, 1, out);
      std::fwrite(said.data(), 1, said.size(), out);
      std::fwrite(image.GetBufferPointer(), sizeof(typename TImage::PixelType),
                  image.GetLargestPossibleRegion().GetNumberOfPixels(), out);
    },
    [&](std::FILE * in) {
      Parcel parcel;
      if (std::fread(&parcel, sizeof parcel, 1, in) != 1)
      {
        return false;
      }
      std::string said(parcel.letters, '\0');
      volume.image = TImage::New();
      volume.image->SetRegions(parcel.size);
      volume.image->SetOrigin(parcel.origin);
      volume.image->SetSpacing(parcel.spacing);
      volume.image->SetDirection(parcel.direction);
      volume.image->Allocate();
      volume.component = parcel.component;
      volume.isScaled = parcel.isScaled;
      const size_t voxels = volume.image->GetLargestPossibleRegion().GetNumberOfPixels();
      const bool   isWhole =
        std::fread(&said[0], 1, said.size(), in) == said.size() &&
        std::fread(volume.image->GetBufferPointer(), sizeof(typename TImage::PixelType), voxels, in) == voxels;
      std::istringstream doubtful(said);
      for (std::string doubt; std::getline(doubtful, doubt, '\0');)
      {
        volume.doubts.push_back(doubt);
      }
      return isWhole;
    });
#else
  volume = ReadHere<TImage>(path, name, [](double) {});
#endif
  doubts.insert(doubts.end(), volume.doubts.begin(), volume.doubts.end());
  return volume;
}

// Reads a mask: 1 where the file is not zero. It is read as float, so that neither a probability nor a large label becomes zero.
MaskType::Pointer
ReadMask(const std::string & path, const std::string & name, Doubts & doubts)
{
  auto volume = ReadVolume<VolumeType>(path, name, doubts).image;
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
ReadLabels(const std::string & path, const std::string & name, Doubts & doubts, itk::IOComponentEnum & component)
{
  const auto read = ReadVolume<LabelType>(path, name, doubts);
  auto       labels = read.image;
  component = read.component;
  const bool     isFloat = component == itk::IOComponentEnum::FLOAT, scaled = read.isScaled;
  const double   limit = std::ldexp(1.0, scaled ? 24 : 53); // refused too: the next number may have been rounded to it
  double         least = 0, greatest = 0;
  const double * voxels = labels->GetBufferPointer();
  for (itk::SizeValueType i = 0; i < labels->GetBufferedRegion().GetNumberOfPixels(); ++i)
  {
    const double value = voxels[i];
    if (!std::isfinite(value) || value != std::floor(value))
    {
      Refuse(name + ": " + path + " has the value " + Digits(value, isFloat) +
             "; labels must be whole numbers, give a label map or round it first");
    }
    if (std::abs(value) >= limit)
    {
      const std::string remedy =
        scaled ? "labels scaled in their file must be smaller than 2^24, renumber them or store them without scl_slope"
               : "labels must be smaller than 2^53, renumber them";
      Refuse(name + ": " + path + " has a value of about " + Digits(value, isFloat) + "; " + remedy);
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

// Reads a transform in this process.
FilterType::InitialTransformType::ConstPointer
ReadTransformHere(const std::string & path)
{
  const std::string start = "initial transform: " + path;
  const auto        refuse = [&](const std::string & why) {
    Refuse(start + " cannot be read: " + why.substr(0, why.find('\n')) +
           "; give a 3-D transform in a file of ITK (.h5, .tfm, .txt, .mat), as `morphseek transform convert` makes "
           "one of others");
  };
  try
  {
    imagefile::RequireRegular(path);
    auto reader = itk::TransformFileReaderTemplate<double>::New();
    reader->SetFileName(path);
    reader->Update();
    const auto & transforms = *reader->GetTransformList(); // a composite counts as one
    if (transforms.size() > 1)                             // ITK does not say in which order they would apply
    {
      Refuse(start + " holds " + std::to_string(transforms.size()) + " transforms; give one, or a composite");
    }
    if (!transforms.empty())
    {
      if (auto * transform = dynamic_cast<FilterType::InitialTransformType *>(transforms.front().GetPointer()))
      {
        return transform;
      }
    }
  }
  catch (const itk::ExceptionObject & error)
  {
    refuse(Reason(error));
  }
  catch (const std::bad_alloc &) // over a .mat that is text, as FSL's
  {
    refuse("it claims more than it can hold");
  }
  catch (const std::exception & error)
  {
    refuse(error.what());
  }
  refuse("it holds no 3-D transform");
  return nullptr;
}

// Reads a transform, in a process of its own first where there is one.
FilterType::InitialTransformType::ConstPointer
ReadTransform(const std::string & path)
{
#ifdef __linux__
  Apart(
    "initial transform: " + path + " cannot be read: ", path,
    [&](std::FILE * out, double) {
      ReadTransformHere(path);
      const ms_status done = MS_OK;
      std::fwrite(&done, sizeof done, 1, out);
    },
    [](std::FILE *) { return true; });
#endif
  return ReadTransformHere(path);
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

// Refuses an output in the place of an input or of another output, and returns all paths in use. A folder stands for its files, and an
// image in several files for all of them. Second files that an output writes are checked when it is claimed.
Roles
CheckPaths(const Arguments & arguments)
{
  Roles taken;
  for (const std::string name : { "0", "1", "fixed-mask", "moving-mask", "rigid", "moving-labels", "initial-transform",
                                  "model", "model-directory", "runtime-library" })
  {
    const std::string path = arguments[name];
    const std::string role = name == "0" ? "the fixed image" : name == "1" ? "the moving image" : "--" + name;
    std::error_code   error;
    if (fs::is_regular_file(path, error))
    {
      taken.emplace(Canonical(path), role);
      for (const fs::path & file : imagefile::Parts(path))
      {
        taken.emplace(Canonical(file), "a part of " + role + " " + path);
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
  const std::string given = fs::path(path).extension().string(), suffix = imagefile::Lower(given);
  if (suffix == ".h5" || suffix == ".hdf5" || suffix == ".tfm" || suffix == ".txt" || suffix == ".mat")
  {
    if (given != suffix) // an image of that name it does write, in HDF5
    {
      itkGenericExceptionMacro("ITK writes a transform to an ending in small letters alone; give " + suffix);
    }
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
  std::replace(reasons.begin(), reasons.end(), '\n', ' '); // the name of a file may have one
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

  Doubts doubts;
  auto   moving = ReadVolume<VolumeType>(arguments["1"], "moving", doubts).image;
  SetOptions(arguments, FilterType::New()); // checks the values, and sets the thread count before the real filter
  auto filter = FilterType::New();
  SetOptions(arguments, filter);
  filter->SetFixedImage(ReadVolume<VolumeType>(arguments["0"], "fixed", doubts).image);
  filter->SetMovingImage(moving);
  arguments.Text("fixed-mask",
                 [&](const std::string & path) { filter->SetFixedMask(ReadMask(path, "fixed mask", doubts)); });
  arguments.Text("moving-mask",
                 [&](const std::string & path) { filter->SetMovingMask(ReadMask(path, "moving mask", doubts)); });
  arguments.Text("rigid", [&](const std::string & path) {
    filter->SetRigidRegions(ReadVolume<FilterType::RegionsImageType>(path, "rigid regions", doubts).image);
  });
  arguments.Text("initial-transform",
                 [&](const std::string & path) { filter->SetInitialTransform(ReadTransform(path)); });
  LabelType::Pointer   labels;
  itk::IOComponentEnum labelComponent{};
  arguments.Text("moving-labels",
                 [&](const std::string & path) { labels = ReadLabels(path, "moving labels", doubts, labelComponent); });
  for (const std::string & doubt : doubts)
  {
    filter->AddDoubt(doubt);
  }

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

int
Fail(ms_status code, const std::string & message)
{
  const std::lock_guard<std::mutex> alone(TheEnding().lock); // after a signal this never returns
  std::cerr << "MorphSeekRegistration: " << message << std::endl;
  return ms_status_exit(code);
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
