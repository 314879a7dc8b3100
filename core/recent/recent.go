// Package recent keeps the newest answers to questions that are asked again, such as by the
// operations of one plan.
package recent

import (
	"slices"
	"sync"
)

// Memory holds at most so many answers; the oldest go first. It is safe for concurrent use.
type Memory[K comparable, V any] struct {
	most    int
	mutex   sync.Mutex
	answers map[K]V
	order   []K // from the oldest
}

// New is a memory of at most so many answers.
func New[K comparable, V any](capacity int) *Memory[K, V] {
	return &Memory[K, V]{most: capacity, answers: map[K]V{}}
}

// Get is the answer to a question, if it is known.
func (m *Memory[K, V]) Get(question K) (V, bool) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	answer, ok := m.answers[question]
	return answer, ok
}

// Put keeps an answer as the newest.
func (m *Memory[K, V]) Put(question K, answer V) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.forget(question)
	if len(m.order) == m.most {
		m.forget(m.order[0])
	}
	m.answers[question], m.order = answer, append(m.order, question)
}

func (m *Memory[K, V]) forget(question K) {
	if index := slices.Index(m.order, question); index >= 0 {
		delete(m.answers, question)
		m.order = slices.Delete(m.order, index, index+1)
	}
}
