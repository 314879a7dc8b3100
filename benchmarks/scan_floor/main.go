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
	"unsafe"
)

const (
	head = 4096 // bytes read of each file
	step = 64   // files that a thread takes at a time
	here = -100 // AT_FDCWD
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

// read gives the names as the system wants them: ended by a zero.
func read() [][]byte {
	var names [][]byte
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		names = append(names, append([]byte(lines.Text()), 0))
	}
	return names
}

// work reads files until none is left and says how many bytes that were.
func work(names [][]byte, next *atomic.Int64) int64 {
	var bytes int64
	var stat syscall.Stat_t
	buffer := make([]byte, head)
	for {
		from := int(next.Add(step)) - step
		if from >= len(names) {
			return bytes
		}
		for _, name := range names[from:min(from+step, len(names))] {
			bytes += visit(name, &stat, buffer)
		}
	}
}

// visit reads the head of one file. A file that cannot be opened ends the program: the floor must be that of all files.
func visit(name []byte, stat *syscall.Stat_t, buffer []byte) int64 {
	flags := uintptr(syscall.O_RDONLY | syscall.O_CLOEXEC)
	at := here
	fd, _, err := syscall.RawSyscall6(syscall.SYS_OPENAT, uintptr(at), uintptr(unsafe.Pointer(&name[0])), flags, 0, 0, 0)
	if err != 0 {
		panic(fmt.Sprintf("%s: %v", name, err))
	}
	_, _, _ = syscall.RawSyscall(syscall.SYS_FSTAT, fd, uintptr(unsafe.Pointer(stat)), 0)
	n, _, _ := syscall.RawSyscall6(syscall.SYS_PREAD64, fd, uintptr(unsafe.Pointer(&buffer[0])), head, 0, 0, 0)
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOSE, fd, 0, 0)
	return int64(n)
}
