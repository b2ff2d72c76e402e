#!/bin/sh
# A shell script: the square root of ten by Newton's steps, in awk.
awk 'BEGIN {
    root = 10
    for (step = 1; step <= 12; step++) {
        error = root * root - 10
        printf "step %d error %.8f\n", step, error
        root -= error / (2 * root)
    }
}'
