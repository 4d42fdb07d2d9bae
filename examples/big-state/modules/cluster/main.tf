variable "name" { type = string }
variable "parent" { type = string }
variable "size" { type = number }
variable "revision" { type = number }

locals {
  services = floor((var.size - 1) / 4)
  nodes    = var.size - 1 - local.services
}

resource "terraform_data" "network" {
  input = { name = "${var.name}-network", region = var.parent }
}

resource "terraform_data" "node" {
  count = local.nodes

  input = {
    name     = format("%s-node-%05d", var.name, count.index)
    network  = terraform_data.network.id
    revision = count.index % 100 == 0 ? var.revision : 0
    labels   = { role = count.index % 3 == 0 ? "storage" : "compute", zone = tostring(count.index % 4) }
  }
}

resource "terraform_data" "service" {
  for_each = toset([for i in range(local.services) : format("%s-service-%05d", var.name, i)])

  input = {
    name    = each.key
    network = terraform_data.network.id
    ports   = [80, 443]
  }
}

output "instances" {
  value = 1 + local.nodes + local.services
}
