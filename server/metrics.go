package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"kl/fault"
	"kl/store"
)

// metrics are what /metrics shows. Labels take few values only: routes are
// templates, methods those of the route table, codes those of the catalogue.
type metrics struct {
	page      http.Handler
	requests  *prometheus.CounterVec
	refusals  *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	bodyBytes prometheus.Histogram
	lockWaits *prometheus.HistogramVec
	runWaits  *prometheus.HistogramVec
}

func newMetrics(st *store.Store) *metrics {
	reg := prometheus.NewRegistry()
	m := &metrics{
		page: promhttp.HandlerFor(reg, promhttp.HandlerOpts{}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kl_http_requests_total", Help: "Requests answered.",
		}, []string{"method", "route", "status"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kl_http_refusals_total", Help: "Requests refused, by class and code of the problem document.",
		}, []string{"class", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kl_http_request_duration_seconds", Help: "Time from a request's head to the end of its answer.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 120},
		}, []string{"method", "route"}),
		bodyBytes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kl_http_body_bytes", Help: "Bytes received as bodies of requests.",
			Buckets: prometheus.ExponentialBuckets(1<<10, 8, 8),
		}),
		lockWaits: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kl_lock_wait_seconds", Help: "Time that a LOCK was held open before it was granted or refused.",
			Buckets: []float64{.001, .01, .1, .5, 1, 2, 3, 4, 5, 10},
		}, []string{"outcome"}),
		runWaits: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kl_reserve_wait_seconds", Help: "Time that a run's reservation was held open before it was granted or refused.",
			Buckets: []float64{.001, .01, .1, .5, 1, 2, 5, 10, 20},
		}, []string{"outcome"}),
	}
	reg.MustRegister(m.requests, m.refusals, m.duration, m.bodyBytes, m.lockWaits, m.runWaits, storeGauges{st},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// request counts an answered request.
func (m *metrics) request(method string, cl *call, status int, took time.Duration) {
	route := "unmatched"
	if cl.route != nil {
		route = cl.path
	} else {
		method = "other"
	}
	m.requests.WithLabelValues(method, route, strconv.Itoa(status)).Inc()
	m.duration.WithLabelValues(method, route).Observe(took.Seconds())
	if cl.refusal != nil {
		m.refusals.WithLabelValues(cl.refusal.Class, cl.refusal.Code).Inc()
	}
	if cl.body != nil {
		m.bodyBytes.Observe(float64(cl.body.n))
	}
}

// lock notes how long a LOCK took to be granted or refused.
func (m *metrics) lock(took time.Duration, err error) {
	outcome := "granted"
	switch {
	case err == nil:
	case fault.Is(err, fault.Locked):
		outcome = "locked"
	default:
		outcome = "refused"
	}
	m.lockWaits.WithLabelValues(outcome).Observe(took.Seconds())
}

// reserve notes how long a reservation took to be granted or refused.
func (m *metrics) reserve(took time.Duration, err error) {
	outcome := "granted"
	switch {
	case err == nil:
	case fault.Is(err, fault.ReservedConflict):
		outcome = "conflict"
	default:
		outcome = "refused"
	}
	m.runWaits.WithLabelValues(outcome).Observe(took.Seconds())
}

// storeGauges reads the store's figures when they are asked for.
type storeGauges struct{ store *store.Store }

func gauge(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("kl_store_"+name, help, nil, nil)
}

// storeFigures are the gauges and counters of store.Stats.
var storeFigures = []struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(store.Stats) float64
}{
	{gauge("file_bytes", "Size of the data file."), prometheus.GaugeValue, func(s store.Stats) float64 { return float64(s.FileBytes) }},
	{gauge("free_page_bytes", "Bytes in the data file that are free for reuse."), prometheus.GaugeValue, func(s store.Stats) float64 { return float64(s.FreePageBytes) }},
	{gauge("states", "States, those in the trash too."), prometheus.GaugeValue, func(s store.Stats) float64 { return float64(s.States) }},
	{gauge("versions", "Versions kept."), prometheus.GaugeValue, func(s store.Stats) float64 { return float64(s.Versions) }},
	{gauge("sessions", "Locks held."), prometheus.GaugeValue, func(s store.Stats) float64 { return float64(s.Sessions) }},
	{gauge("waiters", "Clients waiting for a lock."), prometheus.GaugeValue, func(s store.Stats) float64 { return float64(s.Waiters) }},
	{gauge("runs", "Runs that go on."), prometheus.GaugeValue, func(s store.Stats) float64 { return float64(s.Runs) }},
	{gauge("refused_open", "Refused writes that wait for recovery."), prometheus.GaugeValue, func(s store.Stats) float64 { return float64(s.RefusedOpen) }},
	{gauge("cache_bytes", "Memory that holds head versions."), prometheus.GaugeValue, func(s store.Stats) float64 { return float64(s.CacheBytes) }},
	{gauge("body_bytes", "Memory that holds bodies in flight."), prometheus.GaugeValue, func(s store.Stats) float64 { return float64(s.BodyBytes) }},
	{gauge("commits_total", "Write transactions since the start."), prometheus.CounterValue, func(s store.Stats) float64 { return float64(s.Commits) }},
	{gauge("commit_jobs_total", "Changes in those transactions."), prometheus.CounterValue, func(s store.Stats) float64 { return float64(s.CommitJobs) }},
}

// Describe names the figures.
func (g storeGauges) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range storeFigures {
		ch <- f.desc
	}
}

// Collect reads them.
func (g storeGauges) Collect(ch chan<- prometheus.Metric) {
	st, err := g.store.Stats()
	for _, f := range storeFigures {
		if err != nil {
			ch <- prometheus.NewInvalidMetric(f.desc, err)
			continue
		}
		ch <- prometheus.MustNewConstMetric(f.desc, f.kind, f.of(st))
	}
}
