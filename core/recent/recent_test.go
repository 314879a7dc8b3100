package recent

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTheOldestGoFirst(t *testing.T) {
	m := New[string, int](2)
	m.Put("a", 1)
	m.Put("b", 2)
	m.Put("a", 3) // newer than b from here on
	m.Put("c", 4)
	_, known := m.Get("b")
	assert.False(t, known)
	for question, answer := range map[string]int{"a": 3, "c": 4} {
		found, known := m.Get(question)
		assert.True(t, known, question)
		assert.Equal(t, answer, found, question)
	}
}

func TestWhatIsTakenHasOneOwner(t *testing.T) {
	m := New[int, int](4)
	m.Put(1, 10)
	var owners sync.Map
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			if answer, known := m.Take(1); known {
				owners.Store(i, answer)
			}
		}()
	}
	wait.Wait()
	count := 0
	owners.Range(func(_, answer any) bool {
		assert.Equal(t, 10, answer)
		count++
		return true
	})
	assert.Equal(t, 1, count)
}
