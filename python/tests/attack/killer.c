/* Runs a command and counts its operations on files below a folder. At the n-th
 * it kills the command or lets the operation fail.
 *
 *     killer FOLDER LOG MODE N COMMAND...
 *
 * MODE: count; kill: SIGKILL instead of operation N; an errno's number:
 * operation N fails with it; its negative: operation N and all that follow, as
 * on a full disk. LOG gets one line per operation. It works by seccomp and
 * ptrace, so that it also sees system calls of Go and of static libraries. */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#if !defined(__x86_64__)
#error "only x86-64"
#endif

enum { FD, PATH, AT, AT2, OPEN, OPENAT };
struct call {
  int number, kind;
  const char *name;
};
static const struct call calls[] = {
    {SYS_write, FD, "write"},         {SYS_pwrite64, FD, "pwrite"},
    {SYS_writev, FD, "writev"},       {SYS_pwritev, FD, "pwritev"},
    {SYS_ftruncate, FD, "ftruncate"}, {SYS_fallocate, FD, "fallocate"},
    {SYS_fchmod, FD, "fchmod"},       {SYS_fsync, FD, "fsync"},
    {SYS_fdatasync, FD, "fdatasync"}, {SYS_rename, PATH, "rename"},
    {SYS_unlink, PATH, "unlink"},     {SYS_mkdir, PATH, "mkdir"},
    {SYS_rmdir, PATH, "rmdir"},       {SYS_link, PATH, "link"},
    {SYS_symlink, PATH, "symlink"},   {SYS_truncate, PATH, "truncate"},
    {SYS_chmod, PATH, "chmod"},       {SYS_creat, PATH, "creat"},
    {SYS_renameat, AT, "renameat"},   {SYS_renameat2, AT, "renameat2"},
    {SYS_unlinkat, AT, "unlinkat"},   {SYS_mkdirat, AT, "mkdirat"},
    {SYS_linkat, AT, "linkat"},       {SYS_fchmodat, AT, "fchmodat"},
    {SYS_utimensat, AT, "utimensat"}, {SYS_open, OPEN, "open"},
    {SYS_openat, OPENAT, "openat"},
};
enum { CALLS = sizeof calls / sizeof *calls };

static void die(const char *what) {
  perror(what);
  exit(99);
}

static void link_of(pid_t pid, const char *what, char *out) {
  char name[64];
  snprintf(name, sizeof name, "/proc/%d/%s", pid, what);
  ssize_t n = readlink(name, out, PATH_MAX - 1);
  out[n < 0 ? 0 : n] = 0;
}

static void text_at(pid_t pid, unsigned long address, char *out) {
  size_t n = 0; /* page by page: the next one may not be mapped */
  while (n < PATH_MAX - 1) {
    size_t part = 4096 - (address + n) % 4096;
    if (part > PATH_MAX - 1 - n)
      part = PATH_MAX - 1 - n;
    struct iovec here = {out + n, part}, there = {(void *)(address + n), part};
    ssize_t got = process_vm_readv(pid, &here, 1, &there, 1, 0);
    if (got <= 0)
      break;
    if (memchr(out + n, 0, got))
      return;
    n += got;
  }
  out[n] = 0;
}

static void path_of(pid_t pid, int at, unsigned long address, char *out) {
  char name[PATH_MAX], base[PATH_MAX], what[32];
  text_at(pid, address, name);
  if (name[0] == '/') {
    strcpy(out, name);
    return;
  }
  snprintf(what, sizeof what, "fd/%d", at);
  link_of(pid, at == AT_FDCWD ? "cwd" : what, base);
  snprintf(out, PATH_MAX, "%.2000s/%.2000s", base, name);
}

/* The file that a call changes; an empty text if it changes nothing.
 */
static void file_of(pid_t pid, const struct call *call,
                    const struct user_regs_struct *r, char *out) {
  char what[32];
  out[0] = 0;
  switch (call->kind) {
  case FD:
    snprintf(what, sizeof what, "fd/%d", (int)r->rdi);
    link_of(pid, what, out);
    break;
  case PATH:
    path_of(pid, AT_FDCWD, r->rdi, out);
    break;
  case AT:
    if (r->rsi)
      path_of(pid, (int)r->rdi, r->rsi, out);
    break;
  case OPEN:
    if (r->rsi & (O_CREAT | O_TRUNC))
      path_of(pid, AT_FDCWD, r->rdi, out);
    break;
  case OPENAT:
    if (r->rdx & (O_CREAT | O_TRUNC))
      path_of(pid, (int)r->rdi, r->rsi, out);
    break;
  }
}

int main(int argc, char **argv) {
  if (argc < 6)
    return 98;
  const char *folder = argv[1], *mode = argv[3];
  long target = atol(argv[4]), count = 0;
  FILE *log = fopen(argv[2], "we");
  if (!log)
    die("log");
  int kills = !strcmp(mode, "kill"),
      fails = strcmp(mode, "count") && !kills ? atoi(mode) : 0;
  pid_t child = fork();
  if (child < 0)
    die("fork");
  if (!child) {
    struct sock_filter filter[CALLS + 4];
    int n = 0;
    filter[n++] = (struct sock_filter)BPF_STMT(
        BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < CALLS; i++)
      filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
                                                 calls[i].number, CALLS - i, 0);
    filter[n++] =
        (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    filter[n++] =
        (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
    struct sock_fprog program = {n, filter};
    if (ptrace(PTRACE_TRACEME, 0, 0, 0))
      die("ptrace");
    raise(SIGSTOP);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
      die("seccomp");
    execvp(argv[5], argv + 5);
    die("exec");
  }
  int status;
  if (waitpid(child, &status, 0) != child)
    die("wait");
  if (ptrace(PTRACE_SETOPTIONS, child, 0,
             PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
                 PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL))
    die("options");
  ptrace(PTRACE_CONT, child, 0, 0);
  int code = 97;
  for (;;) {
    pid_t pid = waitpid(-1, &status, __WALL);
    if (pid < 0)
      break;
    if (WIFEXITED(status) || WIFSIGNALED(status)) {
      if (pid == child)
        code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      continue;
    }
    int signal = WSTOPSIG(status), event = status >> 16;
    if (event == PTRACE_EVENT_SECCOMP) {
      struct user_regs_struct regs;
      char path[PATH_MAX];
      ptrace(PTRACE_GETREGS, pid, 0, &regs);
      const struct call *call = calls;
      while (call < calls + CALLS && call->number != (int)regs.orig_rax)
        call++;
      if (call < calls + CALLS) {
        file_of(pid, call, &regs, path);
        if (!strncmp(path, folder, strlen(folder))) {
          count++;
          fprintf(log, "%s %s\n", call->name, path);
          fflush(log);
          if (kills && count == target) {
            kill(child, SIGKILL);
            continue;
          }
          if (fails > 0 ? count == target : fails < 0 && count >= target) {
            regs.orig_rax = -1; /* skips the call; rax is then its result */
            regs.rax = -abs(fails);
            ptrace(PTRACE_SETREGS, pid, 0, &regs);
          }
        }
      }
      signal = 0;
    } else if (event || signal == SIGSTOP) {
      signal = 0; /* a new thread or process starts */
    }
    ptrace(PTRACE_CONT, pid, 0, signal == SIGTRAP ? 0 : signal);
  }
  return code;
}
