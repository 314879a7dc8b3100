package trace

import "fmt"

// lifetimes follows the storages through the segments.
type lifetimes struct {
	events int
	freed  []bool // by storage
}

// check finds a segment that frees what is not allocated.
func (l *lifetimes) check(s *Segment) error {
	if l.events += len(s.Events); l.events > maxEvents {
		return fmt.Errorf("more than %d events", maxEvents)
	}
	for i, e := range s.Events {
		if e >= 0 {
			l.freed = append(l.freed, false)
			continue
		}
		number := -(e + 1)
		if number >= int64(len(l.freed)) || l.freed[number] {
			return fmt.Errorf("event %d frees storage %d, which is not allocated", i, number)
		}
		l.freed[number] = true
	}
	return nil
}
