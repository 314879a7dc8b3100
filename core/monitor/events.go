package monitor

import (
	"strings"
	"sync"

	"github.com/asrconfig/asrconfig-go/core/runlog"
)

const (
	maxEvents    = 512
	maxEventText = 400 // bytes
	// quiet is for how long the same event is not written again, in seconds: a card that comes and goes fills no run log.
	quiet = 60
)

// eventLog keeps what happened, in at most maxEvents entries. When it is full, the kind with the most entries loses one of
// them: a flood of one kind does not wash away the others.
type eventLog struct {
	lock   sync.Mutex
	events []runlog.Event
	named  map[runlog.Event]bool // things said once, their time left out
}

// add writes an event down unless the same was written a moment ago.
func (l *eventLog) add(e runlog.Event) {
	e.Text = strings.ToValidUTF8(e.Text[:min(len(e.Text), maxEventText)], "")
	l.lock.Lock()
	defer l.lock.Unlock()
	for i := len(l.events) - 1; i >= 0 && e.AtS-l.events[i].AtS < quiet; i-- {
		if old := l.events[i]; old.Kind == e.Kind && old.GPU == e.GPU && old.Text == e.Text {
			return
		}
	}
	if len(l.events) == maxEvents {
		l.drop()
	}
	l.events = append(l.events, e)
}

// once writes an event down if the same never was.
func (l *eventLog) once(e runlog.Event) {
	key := runlog.Event{Kind: e.Kind, GPU: e.GPU, Text: e.Text}
	l.lock.Lock()
	known := l.named[key]
	if !known && len(l.named) < maxEvents {
		if l.named == nil {
			l.named = map[runlog.Event]bool{}
		}
		l.named[key] = true
	}
	l.lock.Unlock()
	if !known {
		l.add(e)
	}
}

// drop takes the second entry of the most frequent kind away: the first one says when it began.
func (l *eventLog) drop() {
	counts := map[string]int{}
	most := l.events[0].Kind
	for _, e := range l.events {
		if counts[e.Kind]++; counts[e.Kind] > counts[most] {
			most = e.Kind
		}
	}
	seen := 0
	for i, e := range l.events {
		if e.Kind == most {
			if seen++; seen == min(2, counts[most]) {
				l.events = append(l.events[:i], l.events[i+1:]...)
				return
			}
		}
	}
}

func (l *eventLog) copy() []runlog.Event {
	l.lock.Lock()
	defer l.lock.Unlock()
	return append([]runlog.Event{}, l.events...)
}
