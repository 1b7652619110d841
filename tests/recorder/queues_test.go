package recorder

import (
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
)

type key = int64

// queue is the queue of a line, and what is needed to call it.
type queue struct {
	workqueue.TypedInterface[key]
	clock      *steppedClock
	metrics    *provider    // in the family metrics
	limiter    *lastAnswer  // in the families with a limiter
	processing map[key]bool // the keys that were handed out
	deadlines  map[time.Time]key
}

// inBubble makes the calls of a line in a bubble of testing/synctest, in which one can wait until every other goroutine is blocked. An
// answer is taken after that, so that it does not depend on how fast the queue's own goroutines are.
func inBubble(build func(*testing.T, *trace) *queue) func(*testing.T, *trace) {
	return func(t *testing.T, trace *trace) {
		bubble(t, func(t *testing.T) {
			q := build(t, trace)
			q.processing, q.deadlines = map[key]bool{}, map[time.Time]key{}
			// The goroutines of the queue must end with the bubble. Those of older versions notice a shut-down at a tick.
			defer func() {
				q.ShutDown()
				q.clock.renew()
			}()
			rest()
			for at, c := range trace.Ops {
				answer, returned := q.call(t, at, c)
				rest()
				if !returned {
					answer = q.Len()
				}
				c.answers = []any{answer}
				if q.metrics != nil {
					c.answers = append(c.answers, q.metrics.values())
				}
			}
		})
	}
}

func fifo(t *testing.T, trace *trace) *queue {
	config[struct{ Keys int }](t, trace)
	clock := newSteppedClock()
	return &queue{clock: clock, TypedInterface: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[key]{Clock: clock})}
}

func delaying(t *testing.T, trace *trace) *queue {
	config[struct{ Keys int }](t, trace)
	clock := newSteppedClock()
	config := workqueue.TypedDelayingQueueConfig[key]{Clock: clock}
	return &queue{clock: clock, TypedInterface: workqueue.NewTypedDelayingQueueWithConfig(config)}
}

func rateLimiting(t *testing.T, trace *trace) *queue {
	config := config[struct {
		Keys    int
		Limiter limiterConfig
	}](t, trace)
	clock, limiter := newSteppedClock(), &lastAnswer{TypedRateLimiter: config.Limiter.build(t, clientGo)}
	return &queue{
		clock:          clock,
		limiter:        limiter,
		TypedInterface: workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[key]{Clock: clock}),
	}
}

func measured(t *testing.T, trace *trace) *queue {
	config := config[struct {
		Keys          int
		Kind          string
		Exact         bool // these two are for the reader
		MaxProcessing *int `json:"max_processing"`
	}](t, trace)
	clock, metrics := newSteppedClock(), new(provider)
	q := &queue{clock: clock, metrics: metrics}
	switch config.Kind {
	case "fifo":
		q.TypedInterface = workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[key]{
			Name: "recorded", MetricsProvider: metrics, Clock: clock,
		})
	case "delaying":
		q.TypedInterface = workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[key]{
			Name: "recorded", MetricsProvider: metrics, Clock: clock,
		})
	default:
		t.Fatalf("config: kind %q", config.Kind)
	}
	return q
}

// call makes a call, and says whether it returned something. It fails if a replay could not make that call.
func (q *queue) call(t *testing.T, at int, c *call) (answer any, returned bool) {
	switch c.name {
	case "add":
		q.Add(argument[key](t, c))
	case "get":
		if q.Len() == 0 && !q.ShuttingDown() {
			t.Fatalf("call %d: this get would wait", at)
		}
		k, shutDown := q.Get()
		if shutDown {
			return nil, true
		}
		q.processing[k] = true
		return k, true
	case "done":
		k := argument[key](t, c)
		if !q.processing[k] {
			t.Fatalf("call %d: key %d is not processing", at, k)
		}
		delete(q.processing, k)
		q.Done(k)
	case "len":
	case "shutting_down":
		return q.ShuttingDown(), true
	case "shut_down":
		if q.ShuttingDown() {
			t.Fatalf("call %d: a second shut-down", at)
		}
		q.ShutDown()
	case "add_after":
		k, delay := argument[key](t, c), argument[time.Duration](t, c)
		as[workqueue.TypedDelayingInterface[key]](t, q, at, c).AddAfter(k, delay)
		q.due(t, at, k, delay)
	case "step":
		by := argument[time.Duration](t, c)
		if by < 0 {
			t.Fatalf("call %d: the clock of a queue does not go back", at)
		}
		q.clock.Step(by)
		time.Sleep(by) // the time of the bubble, which a token bucket reads
		rest()
		q.clock.renew()
	case "add_rate_limited":
		k := argument[key](t, c)
		as[workqueue.TypedRateLimitingInterface[key]](t, q, at, c).AddRateLimited(k)
		q.due(t, at, k, q.limiter.answer)
	case "forget":
		as[workqueue.TypedRateLimitingInterface[key]](t, q, at, c).Forget(argument[key](t, c))
	case "num_requeues":
		return as[workqueue.TypedRateLimitingInterface[key]](t, q, at, c).NumRequeues(argument[key](t, c)), true
	default:
		t.Fatalf("call %d: %q is not a call", at, c.name)
	}
	return nil, false
}

// as gives the queue with the methods of its family.
func as[Q any](t *testing.T, q *queue, at int, c *call) Q {
	queue, ok := q.TypedInterface.(Q)
	if !ok {
		t.Fatalf("call %d: a queue of this family has no %s", at, c.name)
	}
	return queue
}

// due fails if another key becomes due at the same nanosecond: client-go defines no order for them.
func (q *queue) due(t *testing.T, at int, key key, delay time.Duration) {
	if delay <= 0 || q.ShuttingDown() {
		return
	}
	deadline := q.clock.Now().Add(delay)
	if other, ok := q.deadlines[deadline]; ok && other != key {
		t.Fatalf("call %d: the keys %d and %d become due at the same time", at, other, key)
	}
	q.deadlines[deadline] = key
}

// lastAnswer keeps the last delay of a limiter.
type lastAnswer struct {
	workqueue.TypedRateLimiter[key]
	answer time.Duration
}

func (l *lastAnswer) When(key key) time.Duration {
	l.answer = l.TypedRateLimiter.When(key)
	return l.answer
}

// renewalPeriod is how often a queue renews the two gauges of running work.
const renewalPeriod = 500 * time.Millisecond

// steppedClock is the fake clock of the Kubernetes packages. But the ticker of the gauges ticks once at each step, so that their values
// do not depend on how many periods a step has.
type steppedClock struct {
	*testingclock.FakeClock
	renewals chan time.Time
}

func newSteppedClock() *steppedClock {
	return &steppedClock{testingclock.NewFakeClock(time.Now()), make(chan time.Time, 1)}
}

func (c *steppedClock) NewTicker(period time.Duration) clock.Ticker {
	if period == renewalPeriod {
		return renewals(c.renewals)
	}
	return c.FakeClock.NewTicker(period)
}

// renew ticks. If the last tick was not taken, no gauges are left to renew.
func (c *steppedClock) renew() {
	select {
	case c.renewals <- c.Now():
	default:
	}
}

type renewals chan time.Time

func (r renewals) C() <-chan time.Time { return r }
func (r renewals) Stop()               {}

// provider holds the metrics of one queue.
type provider struct {
	depth, adds, retries, queueDuration, workDuration, unfinishedWork, longestRunning metric
}

func (p *provider) values() []any {
	return []any{
		p.depth.value, p.adds.value, p.retries.value,
		p.queueDuration.count, p.queueDuration.value, p.workDuration.count, p.workDuration.value,
		p.unfinishedWork.value, p.longestRunning.value,
	}
}

func (p *provider) NewDepthMetric(string) workqueue.GaugeMetric            { return &p.depth }
func (p *provider) NewAddsMetric(string) workqueue.CounterMetric           { return &p.adds }
func (p *provider) NewRetriesMetric(string) workqueue.CounterMetric        { return &p.retries }
func (p *provider) NewLatencyMetric(string) workqueue.HistogramMetric      { return &p.queueDuration }
func (p *provider) NewWorkDurationMetric(string) workqueue.HistogramMetric { return &p.workDuration }
func (p *provider) NewUnfinishedWorkSecondsMetric(string) workqueue.SettableGaugeMetric {
	return &p.unfinishedWork
}
func (p *provider) NewLongestRunningProcessorSecondsMetric(string) workqueue.SettableGaugeMetric {
	return &p.longestRunning
}

// metric is a counter, a gauge, or the count and the sum of a histogram.
type metric struct {
	count int
	value float64
}

func (m *metric) Inc()                  { m.value++ }
func (m *metric) Dec()                  { m.value-- }
func (m *metric) Set(value float64)     { m.value = value }
func (m *metric) Observe(value float64) { m.count, m.value = m.count+1, m.value+value }
