/* A run that prints a line every 100 ms until it is ended. Its argument is another interval, in microseconds. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    useconds_t pause = argc > 1 ? (useconds_t)atoi(argv[1]) : 100000;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (unsigned long number = 1;; number++) {
        printf("line %lu: still at work, and nothing to report but that\n", number);
        usleep(pause);
    }
}
