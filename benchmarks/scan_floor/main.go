// Command scan_floor does the least that any reader of headers must do: open, fstat, read 4 KiB and close every file, by
// raw system calls of several threads. It prints the seconds, those of the CPU and the bytes read. The names are read from standard input,
// one a line, before the clock starts.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	head = 4096 // bytes read of each file
	step = 64   // files that a thread takes at a time
)

func main() {
	workers := flag.Int("workers", 2, "threads")
	flag.Parse()
	names := read()
	var next, total atomic.Int64
	var wait sync.WaitGroup
	start, before := time.Now(), cpu()
	for range *workers {
		wait.Add(1)
		go func() {
			defer wait.Done()
			runtime.LockOSThread()
			total.Add(work(names, &next))
		}()
	}
	wait.Wait()
	fmt.Println(time.Since(start).Seconds(), cpu()-before, total.Load())
}

// cpu is the seconds that this process has used.
func cpu() float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}

func read() (names []string) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		names = append(names, lines.Text())
	}
	return names
}

// work reads files until none is left and says how many bytes that were. A file that cannot be opened ends the program: the floor must be that of
// all files.
func work(names []string, next *atomic.Int64) (bytes int64) {
	var stat syscall.Stat_t
	buffer := make([]byte, head)
	for {
		from := int(next.Add(step)) - step
		if from >= len(names) {
			return bytes
		}
		for _, name := range names[from:min(from+step, len(names))] {
			fd, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
			if err != nil {
				panic(fmt.Sprintf("%s: %v", name, err))
			}
			_ = syscall.Fstat(fd, &stat)
			n, _ := syscall.Pread(fd, buffer, 0)
			_ = syscall.Close(fd)
			bytes += int64(n)
		}
	}
}
