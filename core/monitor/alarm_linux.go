package monitor

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// alarm lets loops sleep in the kernel until a time has passed or it is rung. A timer of Go's wakes a second thread each time
// to look for work that there never is: sleeping here takes three fifths of the processor time.
type alarm struct {
	lock sync.Mutex
	file int // an eventfd, which is readable for ever once it was written; -1: none
}

func newAlarm() *alarm {
	file, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil { // no file is left, say
		file = -1
	}
	return &alarm{file: file}
}

// sleep returns when d has passed or stop is closed, which ring goes along with.
func (a *alarm) sleep(d time.Duration, stop <-chan struct{}) {
	if a.file < 0 {
		sleepByTimer(d, stop)
		return
	}
	for end := time.Now().Add(d); d > 0; d = time.Until(end) {
		wait := unix.NsecToTimespec(int64(d))
		if rung, _ := unix.Ppoll([]unix.PollFd{{Fd: int32(a.file), Events: unix.POLLIN}}, &wait, nil); rung > 0 {
			return
		} // signals end it early
	}
}

func (a *alarm) ring() {
	a.lock.Lock()
	defer a.lock.Unlock()
	if a.file >= 0 {
		_, _ = unix.Write(a.file, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // fails only when it was rung before, often
	}
}

// close comes when no loop sleeps any more.
func (a *alarm) close() {
	a.lock.Lock()
	defer a.lock.Unlock()
	if a.file >= 0 {
		_ = unix.Close(a.file)
		a.file = -1
	}
}
