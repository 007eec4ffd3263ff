package reconciler

// memory is a map that forgets what was put in first when it is full. It has no lock.
type memory[K comparable, V any] struct {
	limit  int
	values map[K]V
	order  []K
}

func newMemory[K comparable, V any](limit int) *memory[K, V] {
	return &memory[K, V]{limit: limit, values: map[K]V{}}
}

func (m *memory[K, V]) has(key K) bool { _, ok := m.values[key]; return ok }

func (m *memory[K, V]) get(key K) (V, bool) { v, ok := m.values[key]; return v, ok }

func (m *memory[K, V]) put(key K, value V) {
	if !m.has(key) {
		if len(m.order) >= m.limit {
			delete(m.values, m.order[0])
			m.order = m.order[1:]
		}
		m.order = append(m.order, key)
	}
	m.values[key] = value
}
