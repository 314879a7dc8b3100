package monitor

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// asleep is by how much the clock that counts sleep is ahead of the one that does not.
func asleep() time.Duration {
	var awake, all unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &awake) != nil ||
		unix.ClockGettime(unix.CLOCK_BOOTTIME, &all) != nil {
		return 0
	}
	return time.Duration(all.Nano() - awake.Nano())
}

// sleeper lets loops sleep in the kernel until a time has passed or it is woken. A timer of Go's
// wakes a second thread each time to look for work that there never is: sleeping here takes three
// fifths of the processor time.
type sleeper struct {
	lock sync.Mutex
	file int // an eventfd, which is readable for ever once it was written; -1: none
}

func newSleeper() *sleeper {
	file, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil { // no file is left, say
		file = -1
	}
	return &sleeper{file: file}
}

// sleep returns when d has passed or stop is closed, which ring goes along with.
func (a *sleeper) sleep(d time.Duration, stop <-chan struct{}) {
	if a.file < 0 {
		sleepByTimer(d, stop)
		return
	}
	for end := time.Now().Add(d); d > 0; d = time.Until(end) {
		wait := unix.NsecToTimespec(int64(d))
		if woken, _ := unix.Ppoll([]unix.PollFd{{Fd: int32(a.file), Events: unix.POLLIN}}, &wait,
			nil); woken > 0 {
			return
		} // signals end it early
	}
}

func (a *sleeper) wake() {
	a.lock.Lock()
	defer a.lock.Unlock()
	if a.file >= 0 {
		// fails only when it was woken before, often
		_, _ = unix.Write(a.file, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

// close comes when no loop sleeps any more.
func (a *sleeper) close() {
	a.lock.Lock()
	defer a.lock.Unlock()
	if a.file >= 0 {
		_ = unix.Close(a.file)
		a.file = -1
	}
}
