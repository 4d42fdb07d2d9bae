variable "name" { type = string }
variable "size" { type = number }
variable "revision" { type = number }

locals {
  # One instance is the region itself; a cluster has 200 at the least, but for
  # the smallest sizes.
  inside   = var.size - 1
  clusters = max(1, min(100, floor(local.inside / 200)))
  each     = floor(local.inside / local.clusters)
  rest     = local.inside - local.clusters * local.each
}

resource "terraform_data" "region" {
  input = { name = var.name }
}

module "cluster" {
  source = "../cluster"
  count  = local.clusters

  name     = "${var.name}-${count.index}"
  parent   = terraform_data.region.id
  size     = local.each + (count.index == 0 ? local.rest : 0)
  revision = var.revision
}

output "id" {
  value = terraform_data.region.id
}

output "instances" {
  value = 1 + sum(module.cluster[*].instances)
}
