// What tools do with the management API, with the client library that many of them are made of: everything is made, listed, looked at
// and deleted again. `rabbit-hole URL` ends with status 0 if all of it worked.
package main

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"reflect"

	rabbithole "github.com/michaelklishin/rabbit-hole/v2"
)

const vhost = "tools/of a shop"

var client *rabbithole.Client

func check(what string, ok bool, found any) {
	if !ok {
		fmt.Fprintf(os.Stderr, "%s: %+v\n", what, found)
		os.Exit(1)
	}
}

// got ends the program if a look-up failed.
func got[T any](what string) func(T, error) T {
	return func(found T, err error) T {
		check(what, err == nil, err)
		return found
	}
}

// did ends the program unless a change was answered with this status.
func did(what string, status int) func(*http.Response, error) {
	return func(answer *http.Response, err error) {
		check(what, err == nil && answer.StatusCode == status, []any{answer, err})
	}
}

func broker() {
	overview := got[*rabbithole.Overview]("overview")(client.Overview())
	check("overview", overview.RabbitMQVersion != "" && overview.Node != "" && len(overview.ExchangeTypes) >= 4, overview)
	check("whoami", got[*rabbithole.WhoamiInfo]("whoami")(client.Whoami()).Name == "guest", "another")
	nodes := got[[]rabbithole.NodeInfo]("nodes")(client.ListNodes())
	check("nodes", len(nodes) == 1 && nodes[0].IsRunning && nodes[0].MemUsed > 0 && nodes[0].DiskFree > 0 && nodes[0].FdUsed > 0, nodes)
	check("node", got[*rabbithole.NodeInfo]("node")(client.GetNode(nodes[0].Name)).Name == nodes[0].Name, nodes)
	protocols := got[[]string]("protocols")(client.EnabledProtocols())
	check("protocols", len(protocols) >= 2, protocols)
	check("alarms", got[rabbithole.ResourceAlarmCheckStatus]("alarms")(client.HealthCheckAlarms()).Status == "ok", "alarm")
	check("virtual hosts", got[rabbithole.HealthCheckStatus]("virtual hosts")(client.HealthCheckVirtualHosts()).Status == "ok", "down")
	check("protocol", got[rabbithole.ProtocolListenerCheckStatus]("protocol")(client.HealthCheckProtocolListener(rabbithole.AMQP)).Status == "ok", "none")
	got[*rabbithole.ClusterName]("cluster name")(client.GetClusterName())
}

func users() {
	// The first user that is made takes the place of the guest who is there without.
	guest := rabbithole.UserSettings{Name: "guest", Password: "guest", Tags: rabbithole.UserTags{"administrator"}}
	did("user guest", 201)(client.PutUser("guest", guest))
	all := rabbithole.Permissions{Configure: ".*", Write: ".*", Read: ".*"}
	did("permissions of guest", 201)(client.UpdatePermissionsIn("/", "guest", all))
	did("vhost", 201)(client.PutVhost(vhost, rabbithole.VhostSettings{Description: "for tools", Tags: rabbithole.VhostTags{"one"}}))
	hash := rabbithole.Base64EncodedSaltedPasswordHashSHA256("secret")
	settings := rabbithole.UserSettings{Name: "tool", PasswordHash: hash, HashingAlgorithm: rabbithole.HashingAlgorithmSHA256, Tags: rabbithole.UserTags{"monitoring"}}
	did("user", 201)(client.PutUser("tool", settings))
	did("user again", 204)(client.PutUser("tool", settings))
	user := got[*rabbithole.UserInfo]("user")(client.GetUser("tool"))
	check("user", user.PasswordHash == hash && reflect.DeepEqual(user.Tags, rabbithole.UserTags{"monitoring"}), user)
	did("permissions", 201)(client.UpdatePermissionsIn(vhost, "tool", rabbithole.Permissions{Configure: "^t", Write: "", Read: ".*"}))
	permission := got[rabbithole.PermissionInfo]("permissions")(client.GetPermissionsIn(vhost, "tool"))
	check("permissions", permission.Configure == "^t" && permission.Write == "" && permission.Read == ".*", permission)
	did("topic permissions", 201)(client.UpdateTopicPermissionsIn(vhost, "tool", rabbithole.TopicPermissions{Exchange: "amq.topic", Write: "^a", Read: ".*"}))
	check("topic permissions", len(got[[]rabbithole.TopicPermissionInfo]("topic permissions")(client.ListTopicPermissionsOf("tool"))) == 1, "others")
	did("user limits", 204)(client.PutUserLimits("tool", rabbithole.UserLimitsValues{"max-connections": 3}))
	limits := got[[]rabbithole.UserLimitsInfo]("user limits")(client.GetUserLimits("tool"))
	check("user limits", len(limits) == 1 && limits[0].Value["max-connections"] == 3, limits)
	did("vhost limits", 204)(client.PutVhostLimits(vhost, rabbithole.VhostLimitsValues{"max-queues": 9}))
	hosts := got[[]rabbithole.VhostLimitsInfo]("vhost limits")(client.GetVhostLimits(vhost))
	check("vhost limits", len(hosts) == 1 && hosts[0].Value["max-queues"] == 9, hosts)
	other, err := rabbithole.NewClient(os.Args[1], "tool", "secret")
	check("client", err == nil, err)
	check("whoami of another", got[*rabbithole.WhoamiInfo]("whoami")(other.Whoami()).Name == "tool", "nobody")
	_, err = other.ListUsers()
	check("users, of one who may not", err != nil, "allowed")
}

func queues() {
	durable := rabbithole.ExchangeSettings{Type: "topic", Durable: true, Arguments: map[string]any{"alternate-exchange": "amq.fanout"}}
	did("exchange", 201)(client.DeclareExchange(vhost, "orders", durable))
	did("exchange again", 204)(client.DeclareExchange(vhost, "orders", durable))
	exchange := got[*rabbithole.DetailedExchangeInfo]("exchange")(client.GetExchange(vhost, "orders"))
	check("exchange", exchange.Type == "topic" && exchange.Durable && exchange.Arguments["alternate-exchange"] == "amq.fanout", exchange)
	settings := rabbithole.QueueSettings{Type: "quorum", Durable: true, Arguments: map[string]any{"x-delivery-limit": 3}}
	did("queue", 201)(client.DeclareQueue(vhost, "work", settings))
	did("queue again", 204)(client.DeclareQueue(vhost, "work", settings))
	queue := got[*rabbithole.DetailedQueueInfo]("queue")(client.GetQueue(vhost, "work"))
	check("queue", queue.Durable && queue.Arguments["x-delivery-limit"] == float64(3) && queue.Node != "" && queue.Messages == 0, queue)
	paged := got[rabbithole.PagedQueueInfo]("page")(client.PagedListQueuesWithParametersIn(vhost, url.Values{"page": {"1"}, "name": {"WOR"}}))
	check("page", paged.PageCount == 1 && len(paged.Items) == 1 && paged.Items[0].Name == "work", paged)
	binding := rabbithole.BindingInfo{Source: "orders", Destination: "work", DestinationType: "queue", RoutingKey: "a.#", Arguments: map[string]any{"n": 1}}
	did("binding", 201)(client.DeclareBinding(vhost, binding))
	bindings := got[[]rabbithole.BindingInfo]("bindings")(client.ListQueueBindingsBetween(vhost, "orders", "work"))
	check("bindings", len(bindings) == 1 && bindings[0].RoutingKey == "a.#" && bindings[0].PropertiesKey != "", bindings)
	check("bindings of a queue", len(got[[]rabbithole.BindingInfo]("bindings")(client.ListQueueBindings(vhost, "work"))) == 2, "others")
	did("binding deleted", 204)(client.DeleteBinding(vhost, bindings[0]))
	did("purge", 204)(client.PurgeQueue(vhost, "work"))
	got[[]rabbithole.ConnectionInfo]("connections")(client.ListConnections())
	got[[]rabbithole.ChannelInfo]("channels")(client.ListChannels())
	got[[]rabbithole.ConsumerInfo]("consumers")(client.ListConsumers())
	check("queues", len(got[[]rabbithole.QueueInfo]("queues")(client.ListQueues())) >= 1, "none")
}

func policies() {
	policy := rabbithole.Policy{Pattern: "^work$", ApplyTo: "queues", Priority: 2, Definition: rabbithole.PolicyDefinition{"max-length": 10}}
	did("policy", 201)(client.PutPolicy(vhost, "short", policy))
	found := got[*rabbithole.Policy]("policy")(client.GetPolicy(vhost, "short"))
	check("policy", found.Priority == 2 && found.Definition["max-length"] == float64(10), found)
	check("policies", len(got[[]rabbithole.Policy]("policies")(client.ListPoliciesIn(vhost))) == 1, "others")
	queue := got[*rabbithole.DetailedQueueInfo]("queue")(client.GetQueue(vhost, "work"))
	check("policy of a queue", queue.Policy == "short", queue)
	operator := rabbithole.OperatorPolicy{Pattern: "^w", ApplyTo: "queues", Definition: rabbithole.PolicyDefinition{"max-length": 5}}
	did("operator policy", 201)(client.PutOperatorPolicy(vhost, "top", operator))
	check("operator policies", len(got[[]rabbithole.OperatorPolicy]("operator policies")(client.ListOperatorPoliciesIn(vhost))) == 1, "others")
	did("global parameter", 201)(client.PutGlobalParameter("tools", map[string]any{"a": 1}))
	got[*rabbithole.GlobalRuntimeParameter]("global parameter")(client.GetGlobalParameter("tools"))
	did("global parameter deleted", 204)(client.DeleteGlobalParameter("tools"))
	got[[]rabbithole.RuntimeParameter]("parameters")(client.ListRuntimeParameters())
}

func definitions() {
	before := got[*rabbithole.ExportedDefinitions]("definitions")(client.ListDefinitions())
	check("definitions", len(*before.Users) == 2 && len(*before.Queues) >= 1 && len(*before.Policies) == 1, before)
	did("queue deleted", 204)(client.DeleteQueue(vhost, "work"))
	did("policy deleted", 204)(client.DeletePolicy(vhost, "short"))
	did("exchange deleted", 204)(client.DeleteExchange(vhost, "orders"))
	did("operator policy deleted", 204)(client.DeleteOperatorPolicy(vhost, "top"))
	did("vhost deleted", 204)(client.DeleteVhost(vhost))
	_, err := client.GetVhost(vhost)
	check("vhost that is deleted", err != nil, "still there")
	did("user deleted", 204)(client.DeleteUser("tool"))
}

func main() {
	var err error
	client, err = rabbithole.NewClient(os.Args[1], "guest", "guest")
	check("client", err == nil, err)
	broker()
	users()
	queues()
	policies()
	definitions()
	fmt.Println("done")
}
