package media

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// unanswered are the system's errors of a disk, a network folder or a mounted drive that does not
// answer, whatever the file.
var unanswered = []syscall.Errno{
	syscall.EIO, syscall.ENOTCONN, syscall.ESTALE, syscall.ETIMEDOUT, syscall.EHOSTDOWN,
	syscall.EHOSTUNREACH, syscall.ENETDOWN,
	syscall.ENETUNREACH, syscall.ENETRESET, syscall.ECONNABORTED, syscall.ECONNRESET,
	syscall.ECONNREFUSED, syscall.ESHUTDOWN,
}

const remoteIO = syscall.Errno(121) // EREMOTEIO, which only Linux has

// StoragePauses lie between the attempts to read. Mounted drives often come back within seconds.
var StoragePauses = []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second,
	4 * time.Second}

var sleep = time.Sleep // replaced in tests

// Simulated is set only in tests: it returns the error with which a file fails to open. It is
// atomic because readers may outlast a scan that ends early.
var Simulated atomic.Pointer[func(path string) error]

// Unanswered reports whether err comes from storage that does not answer, which says nothing about
// the file.
func Unanswered(err error) bool {
	if err == nil { // of nearly all files: what errors.As is given lies on the heap
		return false
	}
	var number syscall.Errno
	return errors.As(err, &number) && (slices.Contains(unanswered, number) ||
		runtime.GOOS == "linux" && number == remoteIO)
}

// Answered calls read, which reads path, until the storage answers, a few times with growing
// pauses. Then the error has the code Storage and names where the storage is mounted.
func Answered(path string, read func() error) error {
	for attempt := 0; ; attempt++ {
		err := read()
		switch {
		case !Unanswered(err) || fault.Is(err, fault.Storage):
			return err
		case attempt == len(StoragePauses):
			return storageFault(path, err)
		}
		sleep(StoragePauses[attempt])
	}
}

// storageFault is the error of storage that did not answer when path was read.
func storageFault(path string, err error) error {
	var named *fs.PathError
	if errors.As(err, &named) {
		path = named.Path
	}
	var number syscall.Errno
	if errors.As(err, &number) { // without the file's name, which stands beside it
		err = number
	}
	hint := "mount it again, or copy the data to a local disk; if other files there can be read, " +
		"the disk is damaged: leave this one out"
	return fault.Wrap(err, fault.Storage, hint, "the storage under %s does not answer after %s: %s",
		fault.Printable(mountOf(path)),
		fault.Plural(len(StoragePauses)+1, "attempt"), fault.Printable(path))
}

// mountOf returns the mount point of path, or its folder where that is unknown. It does not touch
// the file system, which might hang.
func mountOf(path string) string {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return filepath.Dir(path)
	}
	table, _ := os.ReadFile("/proc/self/mounts")
	longest := ""
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		if mount := escapes.Replace(fields[1]); len(mount) > len(longest) &&
			(absolute == mount || strings.HasPrefix(absolute, mount+"/")) {
			longest = mount
		}
	}
	if longest == "" {
		return filepath.Dir(absolute)
	}
	return longest
}

// escapes are the characters that the kernel writes in octal in its tables of mounts.
var escapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
