/* The floor for any file trigger: raw inotify on one folder, and posix_spawn of the stamp. It looks at no file and records
   nothing. */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    int watch = inotify_init1(IN_CLOEXEC);
    if (inotify_add_watch(watch, argv[1], IN_CLOSE_WRITE | IN_MOVED_TO) < 0)
        return 1;
    puts("ready");
    fflush(stdout);
    char events[65536];
    while (read(watch, events, sizeof events) > 0) {
        pid_t child;
        char *arguments[] = {argv[2], argv[3], NULL};
        if (posix_spawn(&child, argv[2], NULL, NULL, arguments, environ) == 0)
            waitpid(child, NULL, 0);
    }
    return 0;
}
